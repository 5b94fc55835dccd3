package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Images of every node; none is pulled from a registry.
const (
	busyboxImage = "kubelab.test/busybox:1"
	pauseImage   = "kubelab.test/pause:1"
)

// Kernel settings that a kubelet changes. They apply to the whole machine, so each node sees files of its own instead.
var machineWide = map[string]string{
	"vm/overcommit_memory":      "1",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// inside is the first process of the node: it prepares the mounts and the network, starts containerd and the kubelet, and ends
// when one of them does.
func inside(args []string) error {
	var n node
	if err := n.parse(args); err != nil {
		return err
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if err := n.mounts(); err != nil {
		return err
	}
	_ = syscall.Sethostname([]byte(n.name))
	err := run(
		"ip link set lo up",
		"ip addr add "+n.theirs+"/30 dev eth0",
		"ip link set eth0 up",
		"ip route add default via "+n.ours,
	)
	if err != nil {
		return err
	}
	api, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", n.api))
	if err != nil {
		return err
	}
	go pass(api, "unix", filepath.Join(n.folder, "api.sock"))
	if err := n.write(); err != nil {
		return err
	}
	if err := n.start("containerd", "containerd", "--config", n.path("containerd.toml")); err != nil {
		return err
	}
	if err := n.importImages(); err != nil {
		return err
	}
	err = n.start("kubelet", "/proc/self/exe", "kubelet", "--config="+n.path("kubelet.yaml"), "--kubeconfig="+n.config,
		"--hostname-override="+n.name, "--node-ip="+n.theirs, "--root-dir=/var/lib/kubelet", "--cert-dir="+n.path("pki"),
		"--feature-gates="+n.gates)
	if err != nil {
		return err
	}
	return reap()
}

func (n *node) path(name string) string { return filepath.Join(n.folder, name) }

// mounts binds the usual system directories to directories of this node.
func (n *node) mounts() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	if err := syscall.Mount("run", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("/run: %w", err)
	}
	for _, at := range []string{"/var/log", "/var/lib/kubelet", "/var/lib/cni"} {
		from := n.path("machine" + at)
		if err := os.MkdirAll(from, 0o755); err != nil {
			return err
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(from, at, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	// The processes that start pods must see the mounts that the kubelet makes for them.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return err
	}
	for name, value := range machineWide {
		at, file := filepath.Join("/proc/sys", name), n.path(filepath.Base(name))
		if _, err := os.Stat(at); err != nil {
			continue
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := syscall.Mount(file, at, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// write writes the configuration of containerd, its network and the kubelet.
func (n *node) write() error {
	files := map[string]string{
		"containerd.toml": fmt.Sprintf(`version = 2
root = %q
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`, n.path("containerd"), pauseImage, n.cni, n.path("cni")),
		"cni/kubelab.conflist": `{"cniVersion": "0.4.0", "name": "kubelab", "plugins": [{"type": "bridge", "bridge": "pods", "isGateway": true,
  "ipam": {"type": "host-local", "subnet": "198.19.255.0/24", "dataDir": "/var/lib/cni/networks"}}]}
`,
		"kubelet.yaml": fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %s
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: %s}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /%s
failSwapOn: false
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
evictionHard: {memory.available: "1Mi", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 2s
resolvConf: ""
`, n.theirs, n.ca, n.cgroup),
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(n.path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// importImages loads the images into containerd as soon as it answers.
func (n *node) importImages() error {
	for name, entry := range map[string][]string{busyboxImage: nil, pauseImage: {"/bin/busybox", "sleep", "2147483647"}} {
		file := n.path("image.tar")
		if err := writeImage(file, name, entry); err != nil {
			return err
		}
		var err error
		for try := 0; try < 300; try++ {
			if err = run("ctr --address /run/containerd/containerd.sock -n k8s.io images import " + file); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// start starts a program that writes its log to the node's folder.
func (n *node) start(name, program string, args ...string) error {
	log, err := os.OpenFile(n.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		return err
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return err
	}
	process, err := os.StartProcess(path, append([]string{program}, args...), &os.ProcAttr{Files: []*os.File{null, log, log}})
	if err != nil {
		return err
	}
	essential[process.Pid] = name
	return process.Release()
}

// essential holds the processes without which the node does not work: containerd and the kubelet.
var essential = map[int]string{}

// reap waits for every orphaned process of the node, which is the duty of the first process. It returns when an essential
// process ends.
func reap() error {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if name, found := essential[pid]; found {
			return fmt.Errorf("%s ended with exit code %d", name, status.ExitStatus())
		}
	}
}
