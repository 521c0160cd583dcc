package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	awaitPause   = 50 * time.Millisecond
	awaitRequest = 10 * time.Second
)

// await asks an HTTPS address until it answers 200, and tells each new obstacle once. It has no deadline of its
// own: whoever starts it stops it.
func await(arguments []string) int {
	if len(arguments) != 4 {
		fmt.Fprintln(os.Stderr, "await takes four arguments: a URL and the files of the CA, the client certificate and its key")
		return 2
	}
	client, err := awaitClient(arguments[1], arguments[2], arguments[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	told := ""
	for {
		obstacle := ask(client, arguments[0])
		if obstacle == "" {
			return 0
		}
		if obstacle != told {
			fmt.Fprintln(os.Stderr, obstacle)
			told = obstacle
		}
		time.Sleep(awaitPause)
	}
}

func awaitClient(caFile, certificateFile, keyFile string) (*http.Client, error) {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s holds no certificate", caFile)
	}
	own, err := tls.LoadX509KeyPair(certificateFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the client certificate: %w", err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}}
	return &http.Client{Transport: transport}, nil
}

// ask returns what stands in the way, or nothing once the answer is 200.
func ask(client *http.Client, url string) string {
	within, cancel := context.WithTimeout(context.Background(), awaitRequest)
	defer cancel()
	request, err := http.NewRequestWithContext(within, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
	if response.StatusCode == http.StatusOK {
		return ""
	}
	return fmt.Sprintf("%s answered %s: %s", url, response.Status, gist(string(body)))
}

// gist is the one line of an answer that matters: the checks that failed, if it lists checks.
func gist(body string) string {
	var failed []string
	for _, line := range strings.Split(body, "\n") {
		if check, found := strings.CutPrefix(line, "[-]"); found {
			failed = append(failed, strings.TrimSpace(check))
		}
	}
	if len(failed) > 0 {
		return strings.Join(failed, "; ")
	}
	return strings.Join(strings.Fields(body), " ")
}
