// What every test runner runs, with the official client: a name and a function of a cluster for each.

import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import * as k8s from '@kubernetes/client-node';

const mergePatch = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);

function connect(cluster) {
  const config = new k8s.KubeConfig();
  config.loadFromFile(cluster.kubeconfig);
  return { config, core: config.makeApiClient(k8s.CoreV1Api), apps: config.makeApiClient(k8s.AppsV1Api) };
}

/**
 * Watches until an event is accepted. Without a version the watch begins with the objects that exist; for a deletion, the
 * version is one from before it.
 */
async function waitUntil(config, path, accept, resourceVersion) {
  const watch = new k8s.Watch(config);
  let abort;
  try {
    await new Promise((resolve, reject) => {
      const onEvent = (type, object) => accept(type, object) && resolve();
      const onEnd = (error) => reject(error ?? new Error('the watch ended'));
      const query = resourceVersion === undefined ? {} : { resourceVersion };
      watch.watch(path, query, onEvent, onEnd).then((controller) => (abort = controller), reject);
    });
  } finally {
    abort?.abort();
  }
}

function deployment(replicas) {
  const labels = { app: 'web' };
  const containers = [{ name: 'web', image: 'web:1', command: ['sh', '-c', 'echo ready; sleep infinity'] }];
  const template = { metadata: { labels }, spec: { containers } };
  return { metadata: { name: 'web' }, spec: { replicas, selector: { matchLabels: labels }, template } };
}

export const scenarios = {
  'a deployment runs, scales, and is deleted with its pods': async (cluster) => {
    const { config, core, apps } = connect(cluster);
    const namespace = await cluster.createNamespace();
    const path = `/apis/apps/v1/namespaces/${namespace}/deployments`;
    await apps.createNamespacedDeployment({ namespace, body: deployment(2) });
    await waitUntil(config, path, (_, found) => found.status?.readyReplicas === 2);
    const body = { spec: { replicas: 3 } };
    await apps.patchNamespacedDeployment({ name: 'web', namespace, body }, mergePatch);
    await waitUntil(config, path, (_, found) => found.status?.readyReplicas === 3);
    const pods = await core.listNamespacedPod({ namespace });
    assert.equal(pods.items.length, 3);
    const name = pods.items[0].metadata.name;
    assert.equal(await core.readNamespacedPodLog({ name, namespace }), 'ready\n');

    const { metadata } = await apps.listNamespacedDeployment({ namespace });
    await apps.deleteNamespacedDeployment({ name: 'web', namespace, propagationPolicy: 'Foreground' });
    await waitUntil(config, path, (type) => type === 'DELETED', metadata.resourceVersion);
    assert.deepEqual((await core.listNamespacedPod({ namespace })).items, []);
    await cluster.deleteNamespace(namespace);
  },

  'a command runs in a pod': async (cluster) => {
    const { config, core } = connect(cluster);
    const namespace = await cluster.createNamespace();
    const spec = { containers: [{ name: 'main', image: 'main:1' }] };
    await core.createNamespacedPod({ namespace, body: { metadata: { name: 'one' }, spec } });
    const path = `/api/v1/namespaces/${namespace}/pods`;
    await waitUntil(config, path, (_, pod) => pod.status.phase === 'Running');
    const stdout = new PassThrough();
    let said = '';
    stdout.on('data', (chunk) => (said += chunk));
    const status = await new Promise((resolve, reject) => {
      const exec = new k8s.Exec(config);
      exec.exec(namespace, 'one', 'main', ['echo', 'hello'], stdout, null, null, false, resolve).catch(reject);
    });
    assert.equal(status.status, 'Success');
    assert.equal(said, 'hello\n');
    await cluster.deleteNamespace(namespace);
  },

  'an informer sees every change': async (cluster) => {
    const { config, core } = connect(cluster);
    const namespace = await cluster.createNamespace();
    const list = () => core.listNamespacedConfigMap({ namespace, labelSelector: 'app=one' });
    const path = `/api/v1/namespaces/${namespace}/configmaps`;
    const informer = k8s.makeInformer(config, path, list, 'app=one');
    const seen = [];
    let notify;
    for (const type of ['add', 'update', 'delete']) {
      informer.on(type, (object) => {
        seen.push(`${type} ${object.data?.key}`);
        notify?.();
      });
    }
    const until = async (n) => {
      while (seen.length < n) await new Promise((resolve) => (notify = resolve));
    };
    await informer.start();
    const metadata = { name: 'one', labels: { app: 'one' } };
    await core.createNamespacedConfigMap({ namespace, body: { metadata, data: { key: '1' } } });
    await until(1);
    const body = { data: { key: '2' } };
    await core.patchNamespacedConfigMap({ name: 'one', namespace, body }, mergePatch);
    await until(2);
    await core.deleteNamespacedConfigMap({ name: 'one', namespace });
    await until(3);
    await informer.stop();
    assert.deepEqual(seen, ['add 1', 'update 2', 'delete 2']);
    await cluster.deleteNamespace(namespace);
  },

  'a stale update conflicts': async (cluster) => {
    const { core } = connect(cluster);
    const namespace = await cluster.createNamespace();
    const stale = await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'one' } } });
    await core.patchNamespacedConfigMap({ name: 'one', namespace, body: { data: { key: '1' } } }, mergePatch);
    await assert.rejects(core.replaceNamespacedConfigMap({ name: 'one', namespace, body: stale }), { code: 409 });
    await assert.rejects(cluster.request('GET', `/api/v1/namespaces/${namespace}/configmaps/none`), {
      name: 'ApiError',
      status: 404,
      reason: 'NotFound',
    });
    await cluster.deleteNamespace(namespace);
  },
};
