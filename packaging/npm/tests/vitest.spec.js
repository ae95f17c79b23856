import { currentCluster } from 'mizzen';
import { expect, test } from 'vitest';
import { scenarios } from './scenarios.js';

for (const [name, scenario] of Object.entries(scenarios)) test(name, () => scenario(currentCluster()));

test('clients find the cluster by KUBECONFIG', () => {
  expect(process.env.KUBECONFIG).toBe(currentCluster().kubeconfig);
});
