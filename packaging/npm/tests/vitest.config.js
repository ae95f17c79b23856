import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    globalSetup: ['mizzen/vitest'],
    globals: true,
    include: ['vitest.spec.js', 'namespace.spec.js'],
    testTimeout: 60_000,
  },
});
