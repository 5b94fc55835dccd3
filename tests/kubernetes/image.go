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

// writeImage writes an image, as `docker save` would, of the busybox of this machine, which has to be a static one.
func writeImage(file, name string, entry []string) error {
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
	var whole bytes.Buffer
	archive := tar.NewWriter(&whole)
	for _, part := range []struct {
		name string
		text []byte
	}{{"config.json", config}, {"layer.tar", layer}, {"manifest.json", manifest}} {
		if err := put(archive, &tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.text))}, part.text); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, whole.Bytes(), 0o644)
}

// busybox is a file system with that program under all its names.
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
	// What starts with bash gets along with this.
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
