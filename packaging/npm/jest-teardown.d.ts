/** Stops the cluster of `mizzen/jest-setup`. */
export default function teardown(): Promise<void>;
