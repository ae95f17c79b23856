package mizzen_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mizzen-dev/mizzen/packaging/go/mizzen"
)

type object = map[string]any

type event struct {
	Type   string
	Object struct {
		Metadata struct{ Name string }
		Status   struct{ ReadyReplicas int }
	}
}

// version returns the current resource version of a list.
func version(t *testing.T, cluster *mizzen.Cluster, path string) string {
	t.Helper()
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := cluster.Do(context.Background(), http.MethodGet, path, nil, &list); err != nil {
		t.Fatal(err)
	}
	return list.Metadata.ResourceVersion
}

// waitUntil watches until an event is accepted. Without a version the watch begins with the objects that exist; for a
// deletion, the version is one from before it.
func waitUntil(t *testing.T, cluster *mizzen.Cluster, path, version string, accept func(event) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, cluster.URL+path+"?watch=true&resourceVersion="+version, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := cluster.HTTPClient().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for decoder := json.NewDecoder(response.Body); ; {
		var next event
		if err := decoder.Decode(&next); err != nil {
			t.Fatalf("the watch of %s ended: %v", path, err)
		}
		if accept(next) {
			return
		}
	}
}

func TestADeploymentRunsScalesAndIsDeletedWithItsPods(t *testing.T) {
	cluster := mizzen.Start(t)
	namespace := cluster.Namespace(t)
	do := func(method, path string, body, into any) {
		t.Helper()
		if err := cluster.Do(context.Background(), method, path, body, into); err != nil {
			t.Fatal(err)
		}
	}
	labels := object{"app": "web"}
	template := object{
		"metadata": object{"labels": labels},
		"spec":     object{"containers": []object{{"name": "web", "image": "web:1"}}},
	}
	deployments := "/apis/apps/v1/namespaces/" + namespace + "/deployments"
	do(http.MethodPost, deployments, object{
		"metadata": object{"name": "web"},
		"spec":     object{"replicas": 2, "selector": object{"matchLabels": labels}, "template": template},
	}, nil)
	ready := func(n int) func(event) bool {
		return func(e event) bool { return e.Object.Status.ReadyReplicas == n }
	}
	waitUntil(t, cluster, deployments, "", ready(2))
	do(http.MethodPatch, deployments+"/web", object{"spec": object{"replicas": 3}}, nil)
	waitUntil(t, cluster, deployments, "", ready(3))

	before := version(t, cluster, deployments)
	do(http.MethodDelete, deployments+"/web", object{"propagationPolicy": "Foreground"}, nil)
	waitUntil(t, cluster, deployments, before, func(e event) bool { return e.Type == "DELETED" })
	var pods struct{ Items []any }
	do(http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods", nil, &pods)
	if len(pods.Items) != 0 {
		t.Errorf("%d pods are left", len(pods.Items))
	}
}

func TestNamedLoopsRunAndOthersDoNot(t *testing.T) {
	cluster := mizzen.Start(t, mizzen.WithLoops("namespace"))
	namespace := cluster.Namespace(t)
	const namespaces = "/api/v1/namespaces"
	before := version(t, cluster, namespaces)
	if err := cluster.Do(context.Background(), http.MethodDelete, namespaces+"/"+namespace, nil, nil); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, cluster, namespaces, before, func(e event) bool {
		return e.Type == "DELETED" && e.Object.Metadata.Name == namespace
	})
	var list struct{ Items []any }
	for _, path := range []string{"/api/v1/nodes", "/api/v1/serviceaccounts"} {
		if err := cluster.Do(context.Background(), http.MethodGet, path, nil, &list); err != nil || len(list.Items) != 0 {
			t.Errorf("%s: %v, %v", path, list.Items, err)
		}
	}
}

func TestAnErrorOfTheAPIHasItsReason(t *testing.T) {
	cluster := mizzen.Start(t, mizzen.APIServerOnly())
	err := cluster.Do(context.Background(), http.MethodGet, "/api/v1/namespaces/none", nil, nil)
	var status *mizzen.StatusError
	if !errors.As(err, &status) || status.Code != 404 || status.Reason != "NotFound" {
		t.Errorf("%v", err)
	}
}

func TestAClusterIsReadySoon(t *testing.T) {
	// What the cluster promises of a release build; a debug build gets another limit.
	limit := 100
	if text := os.Getenv("MIZZEN_READY_LIMIT_MS"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	var took []time.Duration
	for i := 0; i < 5; i++ {
		cluster, err := mizzen.New()
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, cluster.ReadyAfter)
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Dir(cluster.KubeconfigPath)); !os.IsNotExist(err) {
			t.Errorf("its files are left: %v", err)
		}
	}
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	fmt.Printf("from exec to ready: %v, median %v\n", took, took[2])
	if took[2] >= time.Duration(limit)*time.Millisecond {
		t.Errorf("median %v, limit %d ms", took[2], limit)
	}
}

func TestAClusterThatCannotStartShowsItsLog(t *testing.T) {
	_, err := mizzen.New(mizzen.WithArgs("--no-such-flag"))
	if err == nil || !strings.Contains(err.Error(), "unexpected argument '--no-such-flag'") {
		t.Errorf("%v", err)
	}
	if _, err := mizzen.New(mizzen.WithBinary("/no/such/binary")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

const orphan = "MIZZEN_TEST_ORPHAN"

// The test runs itself as a parent that is killed.
func TestAClusterEndsWithAParentThatIsKilled(t *testing.T) {
	if os.Getenv(orphan) != "" {
		cluster, err := mizzen.New()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("url=%s\n", cluster.URL)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	parent := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	parent.Env = append(os.Environ(), orphan+"=1")
	output, _ := parent.Output()
	_, rest, found := strings.Cut(string(output), "url=")
	if !found {
		t.Fatalf("no URL in %q", output)
	}
	address, err := url.Parse(strings.TrimSpace(rest))
	if err != nil {
		t.Fatal(err)
	}
	// A connection that was accepted is closed when the server stops, so this does not spin.
	for {
		connection, err := net.Dial("tcp", address.Host)
		if err != nil {
			return
		}
		_ = connection.SetDeadline(time.Now().Add(time.Minute))
		if _, err := connection.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the cluster still runs")
		}
		_ = connection.Close()
	}
}
