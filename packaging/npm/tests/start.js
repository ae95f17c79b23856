import { startCluster } from 'mizzen';

const cluster = await startCluster({ loops: ['gc', 'namespace'] });
console.log(cluster.url, cluster.kubeconfig, cluster.readyMs);
await cluster.stop();
