import { currentCluster } from 'mizzen';

test('a namespace is active', async () => {
  const name = await currentCluster().createNamespace();
  const { status } = await currentCluster().request('GET', `/api/v1/namespaces/${name}`);
  expect(status.phase).toBe('Active');
});
