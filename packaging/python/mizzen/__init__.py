"""A Kubernetes control plane for tests: API server, controllers, scheduler and simulated nodes in one process.

    import mizzen

    with mizzen.Cluster() as cluster:
        print(cluster.url, cluster.kubeconfig)

Tests with pytest use the fixtures of ``mizzen.pytest_plugin``: ``mizzen``, ``mizzen_client``, ``mizzen_namespace``.
"""

from .cluster import ApiError, Cluster, StartError, binary_path

__all__ = ["ApiError", "Cluster", "StartError", "binary_path"]
