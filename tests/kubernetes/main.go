// Command kube-control-plane is a complete Kubernetes in one binary, for tests: the upstream commands kube-apiserver,
// kube-scheduler, kube-controller-manager and kubelet, the tools kubectl and helm, and an etcd that does not sync to disk,
// because test data does not have to survive a crash of the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // Cron jobs can name a time zone.

	"go.etcd.io/etcd/server/v3/embed"
	helm "helm.sh/helm/v4/pkg/cmd"
	helmkube "helm.sh/helm/v4/pkg/kube"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const usage = "usage: kube-control-plane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|node|kubectl|helm [flags]"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	name := os.Args[1]
	// The upstream commands read os.Args themselves.
	os.Args = append([]string{name}, os.Args[2:]...)
	if folder := os.Getenv("KUBELAB_FOLDER"); folder != "" && !strings.HasPrefix(name, "node") {
		go exitWithInput(folder)
	}
	switch name {
	case "etcd":
		exitOnError(name, etcd(os.Args[1:]))
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kubelet":
		os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
	case "kubectl":
		util.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()))
	case "node":
		exitOnError(name, outside(os.Args[1:]))
	case "node-inside":
		exitOnError(name, inside(os.Args[1:]))
	case "remove":
		remove(os.Args[1])
		os.Exit(1)
	case "helm":
		os.Exit(runHelm())
	default:
		fmt.Fprintf(os.Stderr, "unknown component %q; %s\n", name, usage)
		os.Exit(2)
	}
}

// exitOnError prints the error, if any, and ends this process.
func exitOnError(name string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// runHelm does what Helm's own main function does.
func runHelm() int {
	helmkube.ManagedFieldsManager = "helm"
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err == nil {
		err = command.Execute()
	}
	var failure helm.CommandError
	switch {
	case errors.As(err, &failure):
		return failure.ExitCode
	case err != nil:
		return 1
	}
	return 0
}

// exitWithInput ends this process when its standard input does, which means that its parent has ended. The folder is
// removed too if it contains the marker file, because only the parent had a use for it.
func exitWithInput(folder string) {
	// Look for the marker now: later another component may have removed it already.
	_, err := os.Stat(filepath.Join(folder, ".kubelab"))
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err == nil {
		// Replace this process: it still writes to the folder, and it would end in the middle of the removal.
		_ = syscall.Exec("/proc/self/exe", []string{"kube-control-plane", "remove", folder}, []string{})
	}
	os.Exit(1)
}

// remove deletes the folder until it stays deleted for a while: other components that are ending may still write to it.
func remove(folder string) {
	for tries, gone := 0, 0; tries < 200 && gone < 10; tries++ {
		err := os.RemoveAll(folder)
		if _, there := os.Lstat(folder); err == nil && os.IsNotExist(there) {
			gone++
		} else {
			gone = 0
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// etcd serves one member over plain HTTP until a signal ends it.
func etcd(args []string) error {
	flags := flag.NewFlagSet("etcd", flag.ExitOnError)
	dir := flags.String("data-dir", "", "data directory")
	client := flags.String("client-url", "http://127.0.0.1:2379", "URL for clients")
	peer := flags.String("peer-url", "http://127.0.0.1:2380", "URL for other members")
	if err := flags.Parse(args); err != nil {
		return err
	}
	clientURL, err := url.Parse(*client)
	if err != nil {
		return err
	}
	peerURL, err := url.Parse(*peer)
	if err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Dir = *dir
	config.LogLevel = "warn"
	// A single member elects itself without waiting for others.
	config.TickMs = 20
	config.ElectionMs = 200
	config.UnsafeNoFsync = true
	config.QuotaBackendBytes = 8 << 30
	config.MaxRequestBytes = 8 << 20
	config.ListenClientUrls = []url.URL{*clientURL}
	config.AdvertiseClientUrls = []url.URL{*clientURL}
	config.ListenPeerUrls = []url.URL{*peerURL}
	config.AdvertisePeerUrls = []url.URL{*peerURL}
	config.InitialCluster = config.InitialClusterFromName(config.Name)

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()
	select {
	case <-signals:
		return nil
	case err := <-server.Err():
		return err
	}
}
