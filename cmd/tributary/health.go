package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// healthTimeout bounds the wait for an answer of the process: less than the timeouts that container engines give a check.
const healthTimeout = 4 * time.Second

func healthCommand(a *app) *cobra.Command {
	var live, page bool
	cmd := &cobra.Command{
		Use:   "health [flags]",
		Short: "Ask a process on this host whether it is ready",
		Long: `Ask the run, ship, receive or up that serves TRIBUTARY_HTTP on this host whether it is ready, and
print its answer. The exit code is 0 if it is, 1 if it is not or does not answer: it is
the check of an image that has no other program. The broker is not asked.`,
		Example: `  tributary health                          ready: it does its work
  tributary health --live                   alive: no restart is needed
  tributary health --console                the console answers`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case live && page:
				return usageError{errors.New("pass either --live or --console")}
			case page:
				return a.askConsole(cmd.Context())
			case live:
				return a.askProbe(cmd.Context(), "livez")
			default:
				return a.askProbe(cmd.Context(), "readyz")
			}
		},
	}
	cmd.Flags().BoolVar(&live, "live", false, "ask whether the process is alive, which it is while it waits for the broker")
	cmd.Flags().BoolVar(&page, "console", false, "ask whether the console at TRIBUTARY_CONSOLE_LISTEN answers")
	return cmd
}

// askProbe prints the answer of a probe of this host. It fails if the process is not well or does not answer.
func (a *app) askProbe(ctx context.Context, probe string) error {
	address := a.config.httpAddress()
	if address == "" {
		return usageError{errors.New("TRIBUTARY_HTTP is not set: name the address at which the process serves its probes, such as 127.0.0.1:9464")}
	}
	status, text, err := ask(ctx, "http://"+reachable(address)+"/"+probe)
	if err != nil {
		return fmt.Errorf("no answer at TRIBUTARY_HTTP=%s: start the process with the same setting: %w", address, err)
	}
	fmt.Fprintln(a.stdout, text)
	if status != http.StatusOK {
		return fmt.Errorf("not well: the answer of /%s is %d", probe, status)
	}
	return nil
}

// askConsole fails if the console does not answer. That it asks for a token is an answer, too.
func (a *app) askConsole(ctx context.Context) error {
	address, scheme := a.config.ConsoleListen, "http"
	if a.config.ConsoleCert != "" {
		scheme = "https"
	}
	status, _, err := ask(ctx, scheme+"://"+reachable(address)+"/")
	if err != nil {
		return fmt.Errorf("no answer at TRIBUTARY_CONSOLE_LISTEN=%s: start the console with the same setting: %w", address, err)
	}
	if status >= http.StatusInternalServerError {
		return fmt.Errorf("not well: the answer of the console is %d", status)
	}
	fmt.Fprintln(a.stdout, "ok")
	return nil
}

// ask requests a page of this host. It does not verify the certificate, whose names are for browsers.
func ask(ctx context.Context, url string) (status int, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	client := http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // without the proxies of the environment
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	return response.StatusCode, strings.TrimSpace(string(body)), err
}

// reachable returns the address for requests to a process that listens at an address, which may name no host or all
// addresses of this host.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = ""
		if ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
}
