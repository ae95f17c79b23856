// exec, attach, cp, port-forward and logs of a pod with the official client: `streams.mjs POD [real]`.

import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { PassThrough, Readable } from 'node:stream';
import * as k8s from '@kubernetes/client-node';

const LIMIT = 30_000;
const namespace = 'default';
const [pod, kind] = process.argv.slice(2);
const isReal = kind === 'real';
const config = new k8s.KubeConfig();
config.loadFromDefault();

/** A stream, and what was written to it. */
function sink() {
  const stream = new PassThrough();
  let text = '';
  let changed = () => {};
  stream.on('data', (chunk) => {
    text += chunk;
    changed();
  });
  const until = (part) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`no ${JSON.stringify(part)} in ${JSON.stringify(text)}`)), LIMIT);
      changed = () => {
        if (!text.includes(part)) return;
        clearTimeout(timer);
        resolve(text);
      };
      changed();
    });
  return { stream, until, text: () => text };
}

/** Runs a command until it ends. */
function execute(command, stdin, { out = sink(), tty = false } = {}) {
  const err = sink();
  return new Promise((resolve, reject) => {
    const ended = (status) => resolve({ status, out: out.text(), err: err.text() });
    const exec = new k8s.Exec(config);
    exec.exec(namespace, pod, 'c', command, out.stream, tty ? null : err.stream, stdin, tty, ended).catch(reject);
  });
}

/** Tries again until it succeeds. */
async function eventually(attempt) {
  const end = Date.now() + LIMIT;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (Date.now() > end) throw error;
    }
  }
}

const exitCode = (status) => status.details.causes.find((cause) => cause.reason === 'ExitCode').message;

async function runsCommands() {
  const { status, out, err } = await execute(['sh', '-c', 'cat; echo err >&2; exit 3'], Readable.from(['typed\n']));
  assert.deepEqual([exitCode(status), out, err], ['3', 'typed\n', 'err\n']);
  const hello = await execute(['echo', 'hello'], null);
  assert.deepEqual([hello.status.status, hello.out], ['Success', 'hello\n']);
}

async function hasATerminal() {
  const out = sink();
  Object.assign(out.stream, { rows: 40, columns: 100 });
  const stdin = new PassThrough();
  const ended = execute(['sh'], stdin, { out, tty: true });
  stdin.write('echo answer\n');
  await out.until('\nanswer');
  if (isReal) {
    stdin.write('stty size\n');
    await out.until('40 100');
  }
  stdin.write('exit 4\n');
  assert.equal(exitCode((await ended).status), '4');
}

async function attaches() {
  const [out, err, stdin] = [sink(), sink(), new PassThrough()];
  const attach = new k8s.Attach(config);
  const socket = await attach.attach(namespace, pod, 'c', out.stream, err.stream, stdin, false);
  stdin.write('from javascript\n');
  await out.until('from javascript\n');
  socket.close();
  const log = sink();
  await new k8s.Log(config).log(namespace, pod, 'c', log.stream, { follow: true, tailLines: 1 });
  await log.until('from javascript\n');
}

async function forwardsPorts() {
  const forward = async (port) => {
    const [out, err, input] = [sink(), sink(), new PassThrough()];
    const socket = await new k8s.PortForward(config).portForward(namespace, pod, [port], out.stream, err.stream, input);
    input.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    return { out, err, socket };
  };
  const open = await forward(8080);
  assert.match(await open.out.until('\r\n\r\npage'), /^HTTP\/1.1 200 /);
  open.socket.close();
  const closed = await forward(9999);
  await closed.err.until('connection refused');
  closed.socket.close();
}

async function copiesFiles() {
  const cp = new k8s.Cp(config);
  const text = 'some text\n'.repeat(50_000);
  await mkdir('copied', { recursive: true });
  await writeFile('copied/file', text);
  await execute(['mkdir', '/tmp/copied'], null);
  await cp.cpToPod(namespace, pod, 'c', 'copied', '/tmp/copied');
  await eventually(async () => assert.equal((await execute(['cat', '/tmp/copied/file'], null)).out, text));
  await cp.cpFromPod(namespace, pod, 'c', 'copied', 'back', '/tmp');
  await eventually(async () => assert.equal(await readFile('back/copied/file', 'utf8'), text));
}

const scenarios = [runsCommands, hasATerminal, attaches, forwardsPorts];
// Simulated containers have no tar.
if (isReal) scenarios.push(copiesFiles);
for (const scenario of scenarios) {
  await scenario();
  console.log(`${pod}: ${scenario.name}`);
}
// The log is still followed.
process.exit(0);
