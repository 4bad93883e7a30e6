import { readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { prepareGo } from '../support/clients/gophercloud.js'

const folder = join(dirname(fileURLToPath(import.meta.url)), 'gophercloud')
const sources = readdirSync(folder).map(name => join(folder, name))

t.test('the Terraform provider and cloud-provider-openstack, by gophercloud', async t => {
  t.setTimeout(1_100_000)
  const { directory, go, run } = await prepareGo(t)
  await go('build', '-o', 'clients', ...sources)
  const { stdout, stderr } = await run(join(directory, 'clients'), [])
  const steps = stdout
    .split('\n')
    .filter(Boolean)
    .map(line => JSON.parse(line) as { name: string; problem: string })
  for (const { name, problem } of steps) t.equal(problem, '', name)
  t.equal(steps.filter(({ name }) => name.endsWith(': runs to its end')).length, 7, 'every story was told')
  t.equal(stderr, '')
})
