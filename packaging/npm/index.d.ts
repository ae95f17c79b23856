/** The options of a cluster. */
export interface ClusterOptions {
  /** How many simulated nodes run, 1 by default. All controllers and the scheduler run, too. */
  nodes?: number;
  /**
   * Run the API server with these components only: `gc`, controllers by upstream's names (`namespace`, `deployment`),
   * `scheduler`, `nodes` or `nodes=N`. An empty list runs the API server alone.
   */
  loops?: string[];
  /** Further arguments of `mizzen up` or `mizzen apiserver`. */
  args?: string[];
  /** Environment variables besides those of this process, such as `MIZZEN_LOG`. */
  env?: Record<string, string>;
  /** The binary; `binaryPath()` by default. */
  binary?: string;
  /** How long it may take until it is ready, or until it has stopped; 30 seconds by default. */
  timeoutMs?: number;
}

/** The API server answered a request with an error. */
export class ApiError extends Error {
  /** The HTTP status code. */
  readonly status: number;
  /** The reason of the Status, such as `NotFound`. */
  readonly reason: string;
}

/** How a cluster is reached. */
export class ClusterConnection {
  /** The URL of the API server, `https://127.0.0.1:PORT`. */
  readonly url: string;
  /** The path of the administrator's kubeconfig. */
  readonly kubeconfig: string;
  /** The path of the certificate authority of the server (PEM). */
  readonly caFile: string;
  /** A bearer token of an administrator. */
  readonly token: string;
  /** Sends a request of an administrator; resolves to the decoded JSON, or text. */
  request(method: string, path: string, body?: unknown, contentType?: string): Promise<any>;
  /** Creates a namespace with a unique name; resolves to the name. */
  createNamespace(prefix?: string): Promise<string>;
  /** Deletes a namespace; the namespace controller, if it runs, deletes its objects. */
  deleteNamespace(name: string): Promise<void>;
}

/** A cluster that this process has started. */
export class Cluster extends ClusterConnection {
  private constructor();
  /** The id of the process. */
  readonly pid: number;
  /** Milliseconds from exec until it was ready. */
  readonly readyMs: number;
  /** What it has logged; `env: { MIZZEN_LOG: 'debug' }` logs more. Empty once it is stopped. */
  log(): string;
  /** Stops it with SIGTERM, or SIGKILL after the timeout, and removes its files. It may be stopped already. */
  stop(): Promise<void>;
}

/** Starts a cluster in memory, on a free port of the loopback interface, and waits until it is ready. */
export function startCluster(options?: ClusterOptions): Promise<Cluster>;

/** The cluster that the set-up of the test runner has started, seen from a test. */
export function currentCluster(): ClusterConnection;

/** Sets the variables by which `currentCluster` and clients find a cluster; returns a function that restores them. */
export function exportCluster(cluster: ClusterConnection): () => void;

/** The path of the binary: `MIZZEN_BIN`, the one in this package, or the one on the `PATH`. */
export function binaryPath(): string;
