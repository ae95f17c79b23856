import mizzen

with mizzen.Cluster(nodes=3) as cluster:
    print(cluster.url, cluster.kubeconfig, cluster.ready_seconds)
    print(cluster.request("GET", "/api/v1/nodes")["items"][0]["metadata"]["name"])
