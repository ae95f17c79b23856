import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import test from 'node:test';
import { currentCluster, startCluster } from 'mizzen';
import { useCluster } from 'mizzen/node-test';
import { scenarios } from './scenarios.js';

// What the cluster promises of a release build; a debug build gets another limit.
const READY_LIMIT_MS = Number(process.env.MIZZEN_READY_LIMIT_MS ?? '100');

const cluster = useCluster();

for (const [name, scenario] of Object.entries(scenarios)) test(name, () => scenario(cluster()));

test('clients find the cluster by KUBECONFIG', () => {
  assert.equal(process.env.KUBECONFIG, cluster().kubeconfig);
  assert.equal(currentCluster().url, cluster().url);
});

test('a whole cluster is ready soon', async () => {
  const took = [];
  for (let run = 0; run < 5; run++) {
    const started = await startCluster();
    took.push(started.readyMs);
    await started.stop();
  }
  const [, , median] = took.toSorted((a, b) => a - b);
  console.log(`from exec to ready: ${took.map((ms) => ms.toFixed(0)).join(', ')} ms, median ${median.toFixed(0)} ms`);
  assert.ok(median < READY_LIMIT_MS, `median ${median} ms, limit ${READY_LIMIT_MS} ms`);
});

test('an API server alone has neither nodes nor service accounts', async () => {
  const alone = await startCluster({ loops: [] });
  assert.deepEqual((await alone.request('GET', '/api/v1/nodes')).items, []);
  assert.deepEqual((await alone.request('GET', '/api/v1/serviceaccounts')).items, []);
  await alone.stop();
  await alone.stop();
  assert.equal(existsSync(dirname(alone.kubeconfig)), false);
});

test('a cluster that cannot start shows its log', async () => {
  await assert.rejects(startCluster({ args: ['--no-such-flag'] }), /exit code 2 .*unexpected argument '--no-such-flag'/s);
  await assert.rejects(startCluster({ binary: '/no/such/binary' }), { code: 'ENOENT' });
  await assert.rejects(startCluster({ nodes: 1, loops: [] }), TypeError);
});

test('a cluster ends with a parent that is killed', { timeout: 60_000 }, async () => {
  const program = `
    import { startCluster } from 'mizzen';
    const { url, caFile, token } = await startCluster();
    process.stdout.write(url, () => process.kill(process.pid, 'SIGKILL'));`;
  const parent = spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' });
  assert.equal(parent.signal, 'SIGKILL', parent.stderr);
  // It serves what is in flight, then its port is closed.
  const { port } = new URL(parent.stdout);
  const { connect } = await import('node:net');
  const isOpen = () =>
    new Promise((resolve) => {
      const socket = connect(Number(port), '127.0.0.1');
      socket.on('connect', () => socket.on('close', () => resolve(true)));
      socket.on('error', () => resolve(false));
    });
  // A connection that was accepted is closed when the server stops, so this does not spin.
  while (await isOpen());
});

test('a cluster that is not stopped does not keep its process', () => {
  const program = `
    import { startCluster } from 'mizzen';
    console.log((await startCluster({ loops: [] })).kubeconfig);`;
  const run = spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8', timeout: 60_000 });
  assert.equal(run.status, 0, run.stderr);
  assert.equal(existsSync(dirname(run.stdout.trim())), false);
});

test('the command runs the binary', () => {
  const run = spawnSync('npx', ['--no-install', 'mizzen', 'up', '--help'], { encoding: 'utf8' });
  assert.match(run.stdout, /--nodes/);
  const failed = spawnSync('npx', ['--no-install', 'mizzen', 'no-such-command'], { encoding: 'utf8' });
  assert.equal(failed.status, 2);
});
