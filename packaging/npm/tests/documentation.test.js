import test from 'node:test';
import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';
import { useCluster } from 'mizzen/node-test';

const cluster = useCluster({ nodes: 2 });

test('nodes are ready', async () => {
  const config = new k8s.KubeConfig();
  config.loadFromFile(cluster().kubeconfig);
  const { items } = await config.makeApiClient(k8s.CoreV1Api).listNode();
  assert.equal(items.length, 2);
});

test('a program starts a cluster', async () => {
  const { spawnSync } = await import('node:child_process');
  const run = spawnSync(process.execPath, ['start.js'], { encoding: 'utf8', timeout: 60_000 });
  assert.equal(run.status, 0, run.stderr);
  assert.match(run.stdout, /^https:\/\/127\.0\.0\.1:\d+ \S+ [\d.]+\n$/);
});
