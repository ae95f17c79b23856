// vitest: one cluster for a run. In the configuration: `globalSetup: ['mizzen/vitest']`.

import { exportCluster, startCluster } from './index.js';

/** A set-up with options, for a file of your own: `export default globalSetup({ nodes: 3 })`. */
export function globalSetup(options) {
  return async () => {
    const cluster = await startCluster(options);
    const restore = exportCluster(cluster);
    return async () => {
      restore();
      await cluster.stop();
    };
  };
}

export default globalSetup();
