// Compiled, never run: the declarations fit what users write.
import { ApiError, type Cluster, currentCluster, startCluster } from 'mizzen';
import jestSetup, { globalSetup as jestWithOptions } from 'mizzen/jest-setup';
import jestTeardown from 'mizzen/jest-teardown';
import { useCluster } from 'mizzen/node-test';
import vitestSetup, { globalSetup as vitestWithOptions } from 'mizzen/vitest';

export async function start(): Promise<string> {
  const cluster: Cluster = await startCluster({ loops: ['gc', 'namespace'], env: { MIZZEN_LOG: 'debug' } });
  try {
    return await currentCluster().createNamespace();
  } catch (error) {
    if (error instanceof ApiError) return error.reason;
    throw error;
  } finally {
    await cluster.stop();
  }
}

// @ts-expect-error: the number of nodes is a number
void startCluster({ nodes: 'three' });

export const setups: Array<() => Promise<unknown>> = [jestSetup, jestWithOptions({ nodes: 3 }), jestTeardown];
export const vitest: () => Promise<() => Promise<void>> = vitestWithOptions({ nodes: 0 }) ?? vitestSetup;
export const url = (): string => useCluster()().url;
