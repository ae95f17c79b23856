import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: { globalSetup: ['mizzen/vitest'], include: ['vitest.spec.js'], testTimeout: 60_000 },
});
