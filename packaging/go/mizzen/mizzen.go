// Package mizzen starts a Kubernetes control plane for a test: API server, controllers, scheduler and simulated nodes
// in one process that is ready in milliseconds.
//
//	func TestController(t *testing.T) {
//		cluster := mizzen.Start(t)
//		config, err := clientcmd.BuildConfigFromFlags("", cluster.KubeconfigPath)
//		…
//	}
//
// The binary is that of the environment variable MIZZEN_BIN, or mizzen on the PATH. The package has no dependencies.
package mizzen

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// logTail is the end of the log that an error shows, in bytes.
const logTail = 4000

// Cluster is a cluster in memory, on a free port of the loopback interface.
type Cluster struct {
	// URL of the API server, https://127.0.0.1:PORT.
	URL string
	// KubeconfigPath is the path of the administrator's kubeconfig.
	KubeconfigPath string
	// CAData is the certificate authority of the server (PEM).
	CAData []byte
	// Token is a bearer token of an administrator.
	Token string
	// ReadyAfter is the time from exec until it was ready.
	ReadyAfter time.Duration

	process   *exec.Cmd
	stdin     io.Closer
	ended     chan error
	directory string
	timeout   time.Duration
	stop      sync.Once
	stopError error
	client    *http.Client
}

type options struct {
	nodes   int
	loops   []string
	alone   bool
	args    []string
	env     []string
	binary  string
	timeout time.Duration
}

// Option is an option of Start and New.
type Option func(*options)

// WithNodes runs this many simulated nodes; the default is one. All controllers and the scheduler run, too.
func WithNodes(n int) Option { return func(o *options) { o.nodes = n } }

// WithLoops runs the API server with these components only: gc, controllers by upstream's names (namespace,
// deployment), scheduler, nodes or nodes=N.
func WithLoops(names ...string) Option {
	return func(o *options) { o.alone, o.loops = true, append(o.loops, names...) }
}

// APIServerOnly runs the API server alone, as envtest does.
func APIServerOnly() Option { return func(o *options) { o.alone = true } }

// WithArgs adds arguments of `mizzen up`, or of `mizzen apiserver` with WithLoops and APIServerOnly.
func WithArgs(args ...string) Option { return func(o *options) { o.args = append(o.args, args...) } }

// WithEnv adds environment variables, NAME=VALUE, such as MIZZEN_LOG=debug.
func WithEnv(env ...string) Option { return func(o *options) { o.env = append(o.env, env...) } }

// WithBinary runs this binary.
func WithBinary(path string) Option { return func(o *options) { o.binary = path } }

// WithTimeout limits the time until the cluster is ready, and until it has stopped; the default is 30 seconds.
func WithTimeout(timeout time.Duration) Option { return func(o *options) { o.timeout = timeout } }

// Start starts a cluster and stops it when the test ends. If the test fails, the end of the log is in its output.
func Start(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	cluster, err := New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of mizzen:\n%s", tail(cluster.Log()))
		}
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// New starts a cluster, for TestMain and programs without a testing.TB. The caller stops it with Stop. If this process
// ends without that, however it ends, the cluster ends, too.
func New(opts ...Option) (*Cluster, error) {
	o := options{nodes: 1, timeout: 30 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	binary, err := findBinary(o.binary)
	if err != nil {
		return nil, err
	}
	directory, err := os.MkdirTemp("", "mizzen-")
	if err != nil {
		return nil, err
	}
	cluster := &Cluster{
		KubeconfigPath: filepath.Join(directory, "kubeconfig"),
		directory:      directory,
		timeout:        o.timeout,
		ended:          make(chan error, 1),
	}
	if err := cluster.run(binary, o); err != nil {
		log := tail(cluster.Log())
		return nil, errors.Join(fmt.Errorf("mizzen does not start: %w\n%s", err, log), cluster.Stop())
	}
	return cluster, nil
}

func findBinary(chosen string) (string, error) {
	if chosen != "" {
		return chosen, nil
	}
	if named := os.Getenv("MIZZEN_BIN"); named != "" {
		return named, nil
	}
	found, err := exec.LookPath("mizzen")
	if err != nil {
		return "", fmt.Errorf("no mizzen binary: neither MIZZEN_BIN nor on the PATH: %w", err)
	}
	return found, nil
}

// run starts the process and waits until it is ready.
func (c *Cluster) run(binary string, o options) error {
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	c.Token = hex.EncodeToString(secret)
	tokens := filepath.Join(c.directory, "tokens.csv")
	record := c.Token + ",mizzen-test,mizzen-test,system:masters\n"
	if err := os.WriteFile(tokens, []byte(record), 0o600); err != nil {
		return err
	}
	args := []string{"up", "--nodes", strconv.Itoa(o.nodes)}
	if o.alone {
		args = []string{"apiserver"}
		if len(o.loops) > 0 {
			args = append(args, "--loops", strings.Join(o.loops, ","))
		}
	}
	// It stops when the pipe of its standard input is closed, as the kernel does when this process ends.
	args = append(args, "--in-memory", "--port", "0", "--stop-with-stdin", "--kubeconfig", c.KubeconfigPath,
		"--token-auth-file", tokens)
	process := exec.Command(binary, append(args, o.args...)...)
	process.Dir = c.directory
	process.Env = append(os.Environ(), o.env...)
	log, err := os.Create(filepath.Join(c.directory, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	process.Stderr = log
	if c.stdin, err = process.StdinPipe(); err != nil {
		return err
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := process.Start(); err != nil {
		return err
	}
	c.process = process
	lines := make(chan string, 1)
	go func() {
		reader := bufio.NewReader(stdout)
		line, _ := reader.ReadString('\n')
		lines <- line
		// Wait closes the pipe, so it comes after the last read.
		_, _ = io.Copy(io.Discard, reader)
		c.ended <- process.Wait()
	}()
	var line string
	select {
	case line = <-lines:
	case <-time.After(o.timeout):
		return fmt.Errorf("not ready after %v", o.timeout)
	}
	c.ReadyAfter = time.Since(began)
	_, rest, found := strings.Cut(line, " at ")
	if !found {
		return errors.New("it ended before it was ready")
	}
	c.URL, _, _ = strings.Cut(rest, " ")
	return c.readAuthority()
}

var authority = regexp.MustCompile(`certificate-authority-data"?: *"?([A-Za-z0-9+/=]+)`)

// readAuthority reads the certificate authority from the kubeconfig, and makes the client that trusts it.
func (c *Cluster) readAuthority() error {
	text, err := os.ReadFile(c.KubeconfigPath)
	if err != nil {
		return err
	}
	found := authority.FindSubmatch(text)
	if found == nil {
		return fmt.Errorf("no certificate authority in %s", c.KubeconfigPath)
	}
	if c.CAData, err = base64.StdEncoding.DecodeString(string(found[1])); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.CAData) {
		return fmt.Errorf("no certificate in the authority of %s", c.KubeconfigPath)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	c.client = &http.Client{Transport: &authenticated{token: c.Token, transport: transport}}
	return nil
}

// authenticated adds the bearer token to requests.
type authenticated struct {
	token     string
	transport *http.Transport
}

func (a *authenticated) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+a.token)
	return a.transport.RoundTrip(request)
}

// HTTPClient returns a client that trusts the server and authenticates as an administrator. Requests need URL.
func (c *Cluster) HTTPClient() *http.Client { return c.client }

// StatusError is an error that the API server answered.
type StatusError struct {
	// Code is the HTTP status code.
	Code int
	// Reason of the Status, such as NotFound.
	Reason string `json:"reason"`
	// Message of the Status.
	Message string `json:"message"`
}

func (e *StatusError) Error() string { return fmt.Sprintf("%d %s: %s", e.Code, e.Reason, e.Message) }

// Do sends a request of an administrator: body is sent as JSON unless it is nil, and the response is decoded into `into`
// unless that is nil. PATCH sends a merge patch. An answer that is an error is a *StatusError.
func (c *Cluster) Do(ctx context.Context, method, path string, body, into any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.URL+path, content)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 400 {
		status := &StatusError{Code: response.StatusCode}
		text, _ := io.ReadAll(response.Body)
		if json.Unmarshal(text, status) != nil {
			status.Message = string(text)
		}
		return status
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// Namespace creates a namespace with a unique name, and deletes it when the test ends.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	var created struct{ Metadata struct{ Name string } }
	body := map[string]any{"metadata": map[string]any{"generateName": "test-"}}
	if err := c.Do(context.Background(), http.MethodPost, "/api/v1/namespaces", body, &created); err != nil {
		t.Fatal(err)
	}
	name := created.Metadata.Name
	t.Cleanup(func() {
		err := c.Do(context.Background(), http.MethodDelete, "/api/v1/namespaces/"+name, nil, nil)
		var status *StatusError
		// The test may have deleted it.
		if err != nil && !(errors.As(err, &status) && status.Code == http.StatusNotFound) {
			t.Error(err)
		}
	})
	return name
}

// Log returns what the cluster has logged. It is empty once the cluster is stopped.
func (c *Cluster) Log() string {
	text, _ := os.ReadFile(filepath.Join(c.directory, "log"))
	return string(text)
}

func tail(log string) string {
	if len(log) > logTail {
		return log[len(log)-logTail:]
	}
	return log
}

// Stop stops the cluster with SIGTERM, or SIGKILL after the timeout, and removes its files. Further calls do nothing.
func (c *Cluster) Stop() error {
	c.stop.Do(func() {
		if c.client != nil {
			c.client.Transport.(*authenticated).transport.CloseIdleConnections()
		}
		if c.process != nil {
			_ = c.process.Process.Signal(syscall.SIGTERM)
			select {
			case <-c.ended:
			case <-time.After(c.timeout):
				_ = c.process.Process.Kill()
				<-c.ended
				c.stopError = fmt.Errorf("mizzen did not stop after %v and was killed", c.timeout)
			}
			_ = c.stdin.Close()
		}
		c.stopError = errors.Join(c.stopError, os.RemoveAll(c.directory))
	})
	return c.stopError
}
