// jest: one cluster for a run. In the configuration: `globalSetup: 'mizzen/jest-setup'` and
// `globalTeardown: 'mizzen/jest-teardown'`. Both run in one process, and share the cluster by a global variable.

import { exportCluster, startCluster } from './index.js';

/** A set-up with options, for a file of your own: `export default globalSetup({ nodes: 3 })`. */
export function globalSetup(options) {
  return async () => {
    const cluster = await startCluster(options);
    globalThis[Symbol.for('mizzen.jest')] = { cluster, restore: exportCluster(cluster) };
  };
}

export default globalSetup();
