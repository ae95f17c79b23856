import type { ClusterOptions } from './index.js';

/** A set-up with options, for a file of your own: `export default globalSetup({ nodes: 3 })`. */
export function globalSetup(options?: ClusterOptions): () => Promise<() => Promise<void>>;

declare const setup: () => Promise<() => Promise<void>>;
export default setup;
