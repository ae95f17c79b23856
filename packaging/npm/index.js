// One `mizzen` process: how is it started, found, and stopped?
//
// The process gets a pipe as its standard input and stops when the pipe is closed, so it never outlives the process that
// started it, however that ends. Everything it writes is in a temporary directory, which `stop` removes.

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The end of the log that an error shows. */
const LOG_TAIL = 4000;
/** The variables by which the helpers of test runners pass a cluster to other processes. */
const VARIABLES = { kubeconfig: 'KUBECONFIG', url: 'MIZZEN_URL', token: 'MIZZEN_TOKEN', caFile: 'MIZZEN_CA_FILE' };

export class ApiError extends Error {
  constructor(status, reason, message) {
    super(`${status} ${reason}: ${message}`);
    this.name = 'ApiError';
    this.status = status;
    this.reason = reason;
  }
}

/** The path of the binary: `MIZZEN_BIN`, the one in this package, or the one on the `PATH`. */
export function binaryPath() {
  if (process.env.MIZZEN_BIN) return process.env.MIZZEN_BIN;
  const packaged = fileURLToPath(new URL(`vendor/mizzen-${process.platform}-${process.arch}`, import.meta.url));
  if (existsSync(packaged)) return packaged;
  const directories = (process.env.PATH ?? '').split(delimiter).filter(Boolean);
  // Not the command of this package: it would run itself.
  const found = directories
    .filter((directory) => !directory.endsWith(join('node_modules', '.bin')))
    .map((directory) => join(directory, 'mizzen'))
    .find((path) => existsSync(path));
  if (found === undefined) {
    throw new Error(
      `no mizzen binary for ${process.platform}-${process.arch}: neither MIZZEN_BIN, nor in this package, nor on the PATH`,
    );
  }
  return found;
}

export class ClusterConnection {
  constructor({ url, kubeconfig, caFile, token }) {
    this.url = url;
    this.kubeconfig = kubeconfig;
    this.caFile = caFile;
    this.token = token;
  }

  /** Sends a request of an administrator; resolves to the decoded JSON, or text. */
  async request(method, path, body, contentType = 'application/json') {
    const headers = { authorization: `Bearer ${this.token}`, accept: 'application/json' };
    if (body !== undefined) headers['content-type'] = contentType;
    const { status, type, text } = await new Promise((resolve, reject) => {
      const options = { method, headers, ca: readFileSync(this.caFile), agent: false };
      const sent = httpsRequest(new URL(path, this.url), options, (response) => {
        const chunks = [];
        response.on('data', (chunk) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () =>
          resolve({
            status: response.statusCode,
            type: response.headers['content-type'] ?? '',
            text: Buffer.concat(chunks).toString(),
          }),
        );
      });
      sent.on('error', reject);
      sent.end(body === undefined ? undefined : JSON.stringify(body));
    });
    const answer = type.startsWith('application/json') ? JSON.parse(text) : text;
    if (status >= 400) throw new ApiError(status, answer.reason ?? '', answer.message ?? String(answer));
    return answer;
  }

  /** Creates a namespace with a unique name; resolves to the name. */
  async createNamespace(prefix = 'test') {
    const created = await this.request('POST', '/api/v1/namespaces', { metadata: { generateName: `${prefix}-` } });
    return created.metadata.name;
  }

  /** Deletes a namespace; the namespace controller, if it runs, deletes its objects. */
  async deleteNamespace(name) {
    await this.request('DELETE', `/api/v1/namespaces/${name}`);
  }
}

export class Cluster extends ClusterConnection {
  #child;
  #directory;
  #timeoutMs;
  #removeOnExit;

  /** Not to be called: `startCluster` does. */
  constructor(connection, { child, directory, readyMs, timeoutMs }) {
    super(connection);
    this.#child = child;
    this.#directory = directory;
    this.#timeoutMs = timeoutMs;
    this.readyMs = readyMs;
    this.pid = child.pid;
    this.#removeOnExit = () => rmSync(directory, { recursive: true, force: true });
    process.once('exit', this.#removeOnExit);
    // A cluster that is not stopped does not keep its test from ending.
    for (const part of [child, child.stdin, child.stdout]) part.unref();
  }

  /** What it has logged; `env: { MIZZEN_LOG: 'debug' }` logs more. Empty once it is stopped. */
  log() {
    return readLog(this.#directory);
  }

  /** Stops it with SIGTERM, or SIGKILL after the timeout, and removes its files. It may be stopped already. */
  async stop() {
    this.#child.ref();
    await stopChild(this.#child, this.#timeoutMs);
    process.removeListener('exit', this.#removeOnExit);
    this.#removeOnExit();
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.stop();
  }
}

/** Starts a cluster in memory, on a free port of the loopback interface, and waits until it is ready. */
export async function startCluster(options = {}) {
  const { nodes, loops, args = [], env = {}, binary = binaryPath(), timeoutMs = 30_000 } = options;
  if (nodes !== undefined && loops !== undefined) {
    throw new TypeError("nodes are of the whole cluster; among loops they are 'nodes=N'");
  }
  const command = loops === undefined ? ['up', '--nodes', String(nodes ?? 1)] : ['apiserver'];
  if (loops?.length) command.push('--loops', loops.join(','));
  const directory = mkdtempSync(join(tmpdir(), 'mizzen-'));
  const kubeconfig = join(directory, 'kubeconfig');
  const caFile = join(directory, 'ca.crt');
  const tokens = join(directory, 'tokens.csv');
  const token = randomBytes(16).toString('hex');
  writeFileSync(tokens, `${token},mizzen-test,mizzen-test,system:masters\n`, { mode: 0o600 });
  command.push('--in-memory', '--port', '0', '--stop-with-stdin');
  command.push('--kubeconfig', kubeconfig, '--token-auth-file', tokens, ...args);

  const log = openSync(join(directory, 'log'), 'w');
  const began = performance.now();
  const child = spawn(binary, command, {
    cwd: directory,
    env: { ...process.env, ...env },
    stdio: ['pipe', 'pipe', log],
  });
  closeSync(log);
  try {
    const line = await readyLine(child, directory, timeoutMs);
    const readyMs = performance.now() - began;
    const [, url] = / at (\S+) /.exec(line);
    const [, authority] = /certificate-authority-data"?: *"?([A-Za-z0-9+/=]+)/.exec(readFileSync(kubeconfig, 'utf8'));
    writeFileSync(caFile, Buffer.from(authority, 'base64'));
    return new Cluster({ url, kubeconfig, caFile, token }, { child, directory, readyMs, timeoutMs });
  } catch (error) {
    await stopChild(child, timeoutMs);
    rmSync(directory, { recursive: true, force: true });
    throw error;
  }
}

/** The line that the process prints when it is ready. */
function readyLine(child, directory, timeoutMs) {
  return new Promise((resolve, reject) => {
    let text = '';
    const fail = (why) => reject(new Error(`${why}\n${readLog(directory).slice(-LOG_TAIL)}`));
    const timer = setTimeout(() => fail(`mizzen was not ready after ${timeoutMs} ms`), timeoutMs);
    const settle = (action) => {
      clearTimeout(timer);
      action();
    };
    child.stdin.on('error', () => {});
    child.stdout.on('data', (chunk) => {
      text += chunk;
      if (text.includes('\n')) settle(() => resolve(text));
    });
    child.on('error', (error) => settle(() => reject(error)));
    child.on('close', (code, signal) =>
      settle(() => fail(`mizzen ended with ${signal ?? `exit code ${code}`} before it was ready`)),
    );
  });
}

async function stopChild(child, timeoutMs) {
  // Without a pid it never started.
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), timeoutMs);
  await ended;
  clearTimeout(timer);
}

function readLog(directory) {
  const file = join(directory, 'log');
  return existsSync(file) ? readFileSync(file, 'utf8') : '';
}

/** Sets the variables by which `currentCluster` and clients find a cluster; returns a function that restores them. */
export function exportCluster(cluster) {
  const before = Object.values(VARIABLES).map((name) => [name, process.env[name]]);
  for (const [field, name] of Object.entries(VARIABLES)) process.env[name] = cluster[field];
  return () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
}

/** The cluster that the set-up of the test runner has started, seen from a test. */
export function currentCluster() {
  const entries = Object.entries(VARIABLES).map(([field, name]) => [field, process.env[name]]);
  if (entries.some(([, value]) => !value)) {
    throw new Error('no cluster runs: configure mizzen/vitest, or mizzen/jest-setup and mizzen/jest-teardown');
  }
  return new ClusterConnection(Object.fromEntries(entries));
}
