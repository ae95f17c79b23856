// jest: stops the cluster of `mizzen/jest-setup`.

export default async function teardown() {
  const started = globalThis[Symbol.for('mizzen.jest')];
  started?.restore();
  await started?.cluster.stop();
}
