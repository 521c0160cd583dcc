package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// More connections than one small cluster ever opens; past it a new one waits in the listen queue.
const maxForwarded = 512

// forward copies TCP connections from one address to another. It stands in for kube-proxy, for the one service
// that pods need: the API server's.
func forward(arguments []string) int {
	if len(arguments) != 2 {
		fmt.Fprintln(os.Stderr, "forward takes two arguments: the address to listen on and the address to connect to")
		return 2
	}
	listener, err := net.Listen("tcp", arguments[0])
	if err != nil {
		fmt.Fprintf(os.Stderr, "cannot listen on %s: %v\n", arguments[0], err)
		return 1
	}
	fmt.Fprintf(os.Stderr, "forwarding %s to %s\n", arguments[0], arguments[1])
	places := make(chan struct{}, maxForwarded)
	for {
		connection, err := listener.Accept()
		if err != nil {
			fmt.Fprintf(os.Stderr, "cannot accept on %s: %v\n", arguments[0], err)
			return 1
		}
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			if err := join(connection.(*net.TCPConn), arguments[1]); err != nil {
				fmt.Fprintf(os.Stderr, "cannot reach %s: %v\n", arguments[1], err)
			}
		}()
	}
}

// join copies both ways until both sides have closed, passing each half-close on as it comes.
func join(near *net.TCPConn, address string) error {
	defer near.Close()
	dialled, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return err
	}
	far := dialled.(*net.TCPConn)
	defer far.Close()
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].CloseWrite()
		})
	}
	both.Wait()
	return nil
}
