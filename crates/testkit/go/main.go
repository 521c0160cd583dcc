// One program that is every part of a small Kubernetes cluster, chosen by its first argument or, through a
// link, by the name it is called by. One program instead of six: the packages they share are compiled and linked once.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var parts = []string{
	"await", "etcd", "forward", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet",
}

func main() {
	part, arguments, err := choose(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	// Every part reads os.Args itself and must find itself in first place.
	os.Args = append([]string{part}, arguments...)
	os.Exit(run(part))
}

// choose says which part the command line asks for and what is left over for it.
func choose(args []string) (string, []string, error) {
	if called := filepath.Base(args[0]); slices.Contains(parts, called) {
		return called, args[1:], nil
	}
	if len(args) < 2 || !slices.Contains(parts, args[1]) {
		return "", nil, fmt.Errorf("name a part to run as the first argument: one of %s", strings.Join(parts, ", "))
	}
	return args[1], args[2:], nil
}

func run(part string) int {
	var command *cobra.Command
	switch part {
	case "await":
		return await(os.Args[1:])
	case "etcd":
		etcdmain.Main(os.Args)
		return 0
	case "forward":
		return forward(os.Args[1:])
	case "kube-apiserver":
		command = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		command = controllermanager.NewControllerManagerCommand()
	case "kube-scheduler":
		command = scheduler.NewSchedulerCommand()
	case "kubectl":
		command = kubectl.NewDefaultKubectlCommand()
	case "kubelet":
		command = kubeletCommand(kubelet.NewKubeletCommand)
	}
	return cli.Run(command)
}

// kubeletCommand calls the kubelet's constructor, which takes a context in some releases of Kubernetes and nothing in
// others. Every release has one of the two signatures.
func kubeletCommand(constructor any) *cobra.Command {
	if plain, ok := constructor.(func() *cobra.Command); ok {
		return plain()
	}
	return constructor.(func(context.Context) *cobra.Command)(context.Background())
}
