// node:test: one cluster for a file, or for a suite if it is called there.

import { after, before } from 'node:test';
import { exportCluster, startCluster } from './index.js';

/** Starts a cluster before the tests and stops it after them. Returns a function that tests call to get it. */
export function useCluster(options) {
  let cluster;
  let restore;
  before(async () => {
    cluster = await startCluster(options);
    restore = exportCluster(cluster);
  });
  after(async () => {
    restore?.();
    await cluster?.stop();
  });
  return () => {
    if (cluster === undefined) throw new Error('the cluster runs during tests only');
    return cluster;
  };
}
