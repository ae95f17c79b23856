// Package documentation_test has the examples of docs/go.md, which shows these lines.
package documentation_test

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/mizzen-dev/mizzen/packaging/go/mizzen"
)

type object = map[string]any

var shared *mizzen.Cluster

func TestMain(m *testing.M) {
	var err error
	shared, err = mizzen.New(mizzen.WithLoops("gc", "namespace"))
	if err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	_ = shared.Stop()
	os.Exit(code)
}

func TestTheClusterOfThePackageHasNoNodes(t *testing.T) {
	var nodes struct{ Items []any }
	err := shared.Do(context.Background(), http.MethodGet, "/api/v1/nodes", nil, &nodes)
	if err != nil || len(nodes.Items) != 0 {
		t.Errorf("%v, %v", nodes.Items, err)
	}
}

func TestADeploymentRuns(t *testing.T) {
	cluster := mizzen.Start(t)        // stopped when the test ends
	namespace := cluster.Namespace(t) // deleted when the test ends
	labels := object{"app": "web"}
	containers := []object{{"name": "web", "image": "nginx"}}
	path := "/apis/apps/v1/namespaces/" + namespace + "/deployments"
	err := cluster.Do(context.Background(), http.MethodPost, path, object{
		"metadata": object{"name": "web"},
		"spec": object{
			"selector": object{"matchLabels": labels},
			"template": object{"metadata": object{"labels": labels}, "spec": object{"containers": containers}},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, cluster.URL+path+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := cluster.HTTPClient().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var event struct {
		Object struct{ Status struct{ ReadyReplicas int } }
	}
	for decoder := json.NewDecoder(response.Body); event.Object.Status.ReadyReplicas != 1; {
		if err := decoder.Decode(&event); err != nil {
			t.Fatalf("the watch ended: %v", err)
		}
	}
}
