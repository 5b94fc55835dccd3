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

// node is a machine of a cluster: a kubelet and a containerd of its own, in namespaces of their own for processes, mounts and
// the network. When the first process of a namespace ends the kernel ends the others, and takes their mounts, bridges and
// settings along: only control groups are left, which this process removes.
type node struct {
	folder string // where everything of this node is
	name   string
	api    int    // the port of the API server on loopback, inside as outside
	config string // a kubeconfig
	ca     string // who signs for those that ask the kubelet
	link   string // the interface outside
	ours   string // its address
	theirs string // that of the node
	cni    string // where the plugins are
	gates  string // feature gates of the kubelet
	cgroup string
}

func (n *node) parse(args []string) error {
	flags := flag.NewFlagSet("node", flag.ExitOnError)
	flags.StringVar(&n.folder, "folder", "", "where everything is")
	flags.StringVar(&n.name, "name", "", "what the node is called")
	flags.IntVar(&n.api, "api", 0, "the port of the API server")
	flags.StringVar(&n.config, "kubeconfig", "", "how the kubelet finds the API server")
	flags.StringVar(&n.ca, "client-ca", "", "who signs for those that ask the kubelet")
	flags.StringVar(&n.gates, "feature-gates", "", "feature gates of the kubelet")
	flags.StringVar(&n.cni, "cni", "/usr/lib/cni", "where the plugins are")
	flags.StringVar(&n.cgroup, "cgroup", fmt.Sprintf("kubelab-%d", os.Getpid()), "the control group of its pods")
	number := flags.Int("number", 0, "which of the nodes of this API server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	// Of the range that is for tests of networks (RFC 2544), four addresses for each node.
	at := uint32(198<<24|18<<16) + uint32(n.api*2+*number)%(1<<15)*4
	address := func(i uint32) string {
		return net.IPv4(byte((at+i)>>24), byte((at+i)>>16), byte((at+i)>>8), byte(at+i)).String()
	}
	n.ours, n.theirs = address(1), address(2)
	n.link = fmt.Sprintf("kl%d-%d", n.api, *number)
	return nil
}

// hierarchies are the folders of /sys/fs/cgroup in which pods have a group.
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

// outside starts the node and keeps it until its own input ends, or it is told to end.
func outside(args []string) error {
	var n node
	if err := n.parse(args); err != nil {
		return err
	}
	// What is started here ends in another way.
	os.Unsetenv("KUBELAB_FOLDER")
	_, marked := os.Stat(filepath.Join(filepath.Dir(n.folder), ".kubelab"))
	ended := make(chan string, 3)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended <- "whoever started it is gone"
	}()
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	go func() { ended <- (<-told).String() }()

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

	// That it ends with this process is tied to the thread.
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
	// It is gone when all that ran on it is.
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

// connect makes a wire from this machine to the node.
func (n *node) connect(pid int) error {
	return run(
		"ip link add "+n.link+" type veth peer name eth0 netns "+strconv.Itoa(pid),
		"ip addr add "+n.ours+"/30 dev "+n.link,
		"ip link set "+n.link+" up",
	)
}

func run(lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if said, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, said)
		}
	}
	return nil
}

// makeGroups makes a control group in each hierarchy, with what version 1 does not inherit by itself.
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

// removeStale removes what a node has left whose process was killed before it could do so itself.
func removeStale(top string) {
	found, _ := filepath.Glob(filepath.Join(top, "kubelab-*"))
	for _, group := range found {
		pid := strings.TrimPrefix(filepath.Base(group), "kubelab-")
		if _, err := os.Stat("/proc/" + pid); err != nil {
			removeGroup(group)
		}
	}
}

// removeGroups removes them with all below; a group goes when its last process is gone.
func (n *node) removeGroups() {
	for _, top := range hierarchies() {
		for try := 0; try < 250 && !removeGroup(filepath.Join(top, n.cgroup)); try++ {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// removeGroup says whether it is gone.
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

// pass answers whoever connects with what is at the other address.
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
