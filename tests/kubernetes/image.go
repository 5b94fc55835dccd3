package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// writeImage writes a container image of this machine's busybox in the format of `docker save`. The busybox must be a static binary.
func writeImage(path, name string, entry []string) error {
	layer, err := busybox()
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": []string{"PATH=/bin"}, "Entrypoint": entry},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	var image bytes.Buffer
	archive := tar.NewWriter(&image)
	for _, file := range []struct {
		name string
		text []byte
	}{{"config.json", config}, {"layer.tar", layer}, {"manifest.json", manifest}} {
		if err := put(archive, &tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.text))}, file.text); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, image.Bytes(), 0o644)
}

// busybox returns a file system layer with the program under all of its applet names.
func busybox() ([]byte, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	names, err := exec.Command(path, "--list").Output()
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	for _, folder := range []string{"bin/", "tmp/", "etc/"} {
		if err := put(archive, &tar.Header{Name: folder, Typeflag: tar.TypeDir, Mode: 0o777}, nil); err != nil {
			return nil, err
		}
	}
	if err := put(archive, &tar.Header{Name: "bin/busybox", Mode: 0o755, Size: int64(len(program))}, program); err != nil {
		return nil, err
	}
	// Commands that ask for bash get sh.
	script := []byte("#!/bin/sh\nexec /bin/sh \"$@\"\n")
	if err := put(archive, &tar.Header{Name: "bin/bash", Mode: 0o755, Size: int64(len(script))}, script); err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(string(names)) {
		if name == "busybox" || name == "bash" {
			continue
		}
		if err := put(archive, &tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, nil); err != nil {
			return nil, err
		}
	}
	err = archive.Close()
	return layer.Bytes(), err
}

func put(archive *tar.Writer, header *tar.Header, text []byte) error {
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(text)
	return err
}
