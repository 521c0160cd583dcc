// A CSI driver's registration with the kubelet, for drivers that run as plain processes on a test node. The kubelet
// finds the socket below its plugins_registry folder, asks what is behind it, and says whether it took it.
package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type registrar struct {
	registration.UnimplementedRegistrationServer
	driver, endpoint string
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              r.driver,
		Endpoint:          r.endpoint,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if status.PluginRegistered {
		fmt.Fprintf(os.Stderr, "the kubelet took %s\n", r.driver)
	} else {
		// Not the end: the kubelet asks again.
		fmt.Fprintf(os.Stderr, "the kubelet refused %s: %s\n", r.driver, status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func serve(driver, endpoint, socket string) error {
	// What a killed registrar left would make listening fail.
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registrar{driver: driver, endpoint: endpoint})
	return server.Serve(listener)
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: registrar DRIVER-NAME DRIVER-SOCKET REGISTRATION-SOCKET")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintf(os.Stderr, "%s cannot be registered through %s: %v\n", os.Args[1], os.Args[3], err)
		os.Exit(1)
	}
}
