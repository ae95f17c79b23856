import type { Cluster, ClusterOptions } from './index.js';

/** Starts a cluster before the tests and stops it after them. Returns a function that tests call to get it. */
export function useCluster(options?: ClusterOptions): () => Cluster;
