package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// node is a cluster node: a kubelet and a containerd in their own process, mount and network namespaces. When the first
// process of a PID namespace ends, the kernel ends all other processes in it and releases their mounts, bridges and settings.
// Only control groups remain, which this process removes.
type node struct {
	folder string // directory of all files of this node
	name   string
	api    int    // port of the API server on loopback, the same inside and outside
	config string // kubeconfig of the kubelet
	ca     string // certificate authority for clients of the kubelet
	link   string // network interface on the host
	ours   string // address of the host's end
	theirs string // address of the node's end
	cni    string // directory of the CNI plugins
	gates  string // feature gates of the kubelet
	cgroup string // control group of its pods
}

func (n *node) parse(args []string) error {
	flags := flag.NewFlagSet("node", flag.ExitOnError)
	flags.StringVar(&n.folder, "folder", "", "directory for all files of the node")
	flags.StringVar(&n.name, "name", "", "node name")
	flags.IntVar(&n.api, "api", 0, "port of the API server")
	flags.StringVar(&n.config, "kubeconfig", "", "kubeconfig of the kubelet")
	flags.StringVar(&n.ca, "client-ca", "", "certificate authority for clients of the kubelet")
	flags.StringVar(&n.gates, "feature-gates", "", "feature gates of the kubelet")
	flags.StringVar(&n.cni, "cni", "/usr/lib/cni", "directory of the CNI plugins")
	flags.StringVar(&n.cgroup, "cgroup", fmt.Sprintf("kubelab-%d", os.Getpid()), "control group of the pods")
	number := flags.Int("number", 0, "index of this node among the nodes of the API server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	// Four addresses per node, from the range for network benchmarks (RFC 2544).
	at := uint32(198<<24|18<<16) + uint32(n.api*2+*number)%(1<<15)*4
	address := func(i uint32) string {
		return net.IPv4(byte((at+i)>>24), byte((at+i)>>16), byte((at+i)>>8), byte(at+i)).String()
	}
	n.ours, n.theirs = address(1), address(2)
	n.link = fmt.Sprintf("kl%d-%d", n.api, *number)
	return nil
}

// hierarchies returns the directories below /sys/fs/cgroup in which pods have a control group.
func hierarchies() []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	var found []string
	for _, name := range []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd", "unified", "hugetlb", "perf_event", "net_cls", "net_prio"} {
		path := filepath.Join("/sys/fs/cgroup", name)
		if real, err := filepath.EvalSymlinks(path); err == nil && real == path {
			found = append(found, path)
		}
	}
	return found
}

// outside starts the node and keeps it running until standard input ends or a signal arrives.
func outside(args []string) error {
	var n node
	if err := n.parse(args); err != nil {
		return err
	}
	// The processes started here end with this one, not with their input.
	os.Unsetenv("KUBELAB_FOLDER")
	_, marked := os.Stat(filepath.Join(filepath.Dir(n.folder), ".kubelab"))
	ended := make(chan string, 3)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended <- "standard input has ended"
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { ended <- (<-signals).String() }()

	if err := n.makeGroups(); err != nil {
		return err
	}
	defer n.removeGroups()
	if err := os.MkdirAll(n.folder, 0o755); err != nil {
		return err
	}
	socket, err := net.Listen("unix", filepath.Join(n.folder, "api.sock"))
	if err != nil {
		return err
	}
	go pass(socket, "tcp", fmt.Sprintf("127.0.0.1:%d", n.api))

	// Pdeathsig fires when the thread that started the child ends.
	runtime.LockOSThread()
	inner := exec.Command("/proc/self/exe", append([]string{"node-inside", "--cgroup=" + n.cgroup}, args...)...)
	inner.Stdout, inner.Stderr = os.Stdout, os.Stderr
	inner.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	start, err := inner.StdinPipe()
	if err != nil {
		return err
	}
	if err := inner.Start(); err != nil {
		return err
	}
	go func() { ended <- fmt.Sprint("the node has ended: ", inner.Wait()) }()
	err = n.connect(inner.Process.Pid)
	if err == nil {
		_, err = start.Write([]byte("go\n"))
	}
	if err == nil {
		err = errors.New(<-ended)
	}
	_ = inner.Process.Kill()
	// The process exists until all other processes of the node have ended.
	for i := 0; i < 500 && syscall.Kill(inner.Process.Pid, 0) == nil; i++ {
		time.Sleep(20 * time.Millisecond)
	}
	_ = exec.Command("ip", "link", "del", n.link).Run()
	n.removeGroups()
	if marked == nil {
		remove(n.folder)
	}
	return err
}

// connect creates a network link between this machine and the node.
func (n *node) connect(pid int) error {
	return run(
		"ip link add "+n.link+" type veth peer name eth0 netns "+strconv.Itoa(pid),
		"ip addr add "+n.ours+"/30 dev "+n.link,
		"ip link set "+n.link+" up",
	)
}

// run runs commands one after the other.
func run(lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if output, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, output)
		}
	}
	return nil
}

// makeGroups creates a control group in each hierarchy and sets the CPU sets, which version 1 does not inherit.
func (n *node) makeGroups() error {
	for _, top := range hierarchies() {
		removeStale(top)
		group := filepath.Join(top, n.cgroup)
		if err := os.MkdirAll(group, 0o755); err != nil {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if set, err := os.ReadFile(filepath.Join(top, file)); err == nil {
				_ = os.WriteFile(filepath.Join(group, file), set, 0o644)
			}
		}
	}
	return nil
}

// removeStale removes the control groups of nodes whose process was killed before it could remove them.
func removeStale(top string) {
	found, _ := filepath.Glob(filepath.Join(top, "kubelab-*"))
	for _, group := range found {
		pid := strings.TrimPrefix(filepath.Base(group), "kubelab-")
		if _, err := os.Stat("/proc/" + pid); err != nil {
			removeGroup(group)
		}
	}
}

// removeGroups removes the node's control groups with their children. A group can be removed once its last process has ended.
func (n *node) removeGroups() {
	for _, top := range hierarchies() {
		for try := 0; try < 250 && !removeGroup(filepath.Join(top, n.cgroup)); try++ {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// removeGroup removes a control group with its children and reports whether it no longer exists.
func removeGroup(group string) bool {
	var folders []string
	_ = filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return nil
	})
	for i := len(folders) - 1; i >= 0; i-- {
		_ = syscall.Rmdir(folders[i])
	}
	_, err := os.Stat(group)
	return err != nil
}

// pass forwards every connection of the listener to an address.
func pass(listener net.Listener, network, address string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			to, err := net.Dial(network, address)
			if err != nil {
				return
			}
			defer to.Close()
			done := make(chan struct{}, 2)
			half := func(a, b net.Conn) {
				_, _ = io.Copy(a, b)
				if c, ok := a.(interface{ CloseWrite() error }); ok {
					_ = c.CloseWrite()
				}
				done <- struct{}{}
			}
			go half(to, from)
			go half(from, to)
			<-done
			<-done
		}()
	}
}
