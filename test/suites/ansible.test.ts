import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'
import { clientEnvironment } from '../support/clients/openstack-session.js'
import { startKrater } from '../support/worlds/krater.js'

const here = dirname(fileURLToPath(import.meta.url))
const script = join(dirname(here), 'support/clients/ansible-playbook.py')
const COLLECTION = 'ansible_collections/openstack/cloud'
/** Where Debian has Ansible's collections, and its Python. */
const INSTALLED = '/usr/lib/python3/dist-packages'
const PYTHON = '/usr/bin/python3'
/** Debian's collection is made for SDKs before 0.99, and its SDK is newer: what the copy in the test has in their place. */
const CORRECTED: Readonly<Record<string, readonly [string, string]>> = {
  'module_utils/openstack.py': ["MAXIMUM_SDK_VERSION = '0.98.999'", 'MAXIMUM_SDK_VERSION = None'],
  'modules/endpoint.py': ['endpoint.enabled', 'endpoint.is_enabled'],
  'modules/project.py': ['project.get(key)', "project.get({'enabled': 'is_enabled'}.get(key, key))"],
}
/** Modules of services that Krater does not offer, by the beginning of their names. */
const NOT_OFFERED = [
  ...['address_scope', 'baremetal', 'coe', 'compute', 'container', 'dns', 'floating_ip', 'host_aggregate', 'image'],
  ...['keypair', 'neutron_rbac', 'object', 'recordset', 'router', 'security_group', 'server', 'stack', 'subnet_pool'],
  ...['volume', 'federation', 'keystone_federation'],
  // Both ask the compute service.
  ...['project_access', 'quota'],
  // It reads clouds.yaml and asks no service.
  'config',
]
/** Without a check mode, modules say nothing of what they would do, and do nothing. */
const WITHOUT_CHECK_MODE = ['a member', 'a pool', 'a listener', 'a network', 'a user']

type Outcome = { name: string; changed: boolean | null; problem: string; found: Record<string, number> }

t.test('Ansible’s modules', async t => {
  t.setTimeout(1_100_000)
  const directory = mkdtempSync(join(tmpdir(), 'ansible-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  copyCollection(directory)
  const used = usedModules()
  const unknown = modulesOf(directory).filter(
    name => !used.has(name) && !NOT_OFFERED.some(beginning => name.startsWith(beginning)),
  )
  t.strictSame(unknown, [], 'the playbooks use every module of what Krater offers')

  // With a machine that reports: a module waits until a pool is ONLINE.
  const krater = await startKrater(t)
  const env = { ...clientEnvironment(krater, 'krater-admin'), PYTHONPATH: directory, PYTHONDONTWRITEBYTECODE: '1' }
  const play = async (playbook: string, ...mode: string[]): Promise<Outcome[]> => {
    const words = [script, join(here, 'ansible', `${playbook}.yml`), ...mode]
    const { stdout } = await promisify(execFile)(PYTHON, words, { env, timeout: 200_000 })
    return stdout
      .trim()
      .split('\n')
      .map(line => JSON.parse(line) as Outcome)
  }

  for (const { name, changed, problem } of await play('present')) {
    t.strictSame({ changed, problem }, { changed: true, problem: '' }, `${name} is made`)
  }
  for (const { name, changed, problem } of await play('present')) {
    t.strictSame({ changed, problem }, { changed: false, problem: '' }, `a second run finds ${name} as it should be`)
  }
  for (const { name, problem, found } of await play('read')) {
    const lists = Object.entries(found).filter(([key]) => key.startsWith('openstack_'))
    t.equal(problem, '', `reads ${name}`)
    if (name !== 'a token')
      t.strictSame(
        lists.map(([, count]) => count),
        [1],
        `finds ${name}`,
      )
  }
  for (const { name, changed, problem } of await play('absent', 'check')) {
    const expected = { changed: WITHOUT_CHECK_MODE.includes(name) ? null : true, problem: '' }
    t.strictSame({ changed, problem }, expected, `check mode foresees the end of ${name}`)
  }
  for (const { name, changed, problem } of await play('absent')) {
    t.strictSame({ changed, problem }, { changed: true, problem: '' }, `${name} is removed, and was there`)
  }
  for (const { name, changed } of (await play('absent')).filter(({ problem }) => problem === '')) {
    t.equal(changed, false, `${name} is gone`)
  }
})

function copyCollection(directory: string): void {
  const copy = join(directory, COLLECTION)
  mkdirSync(dirname(copy), { recursive: true })
  cpSync(join(INSTALLED, COLLECTION), copy, { recursive: true })
  for (const [name, [old, corrected]] of Object.entries(CORRECTED)) {
    const file = join(copy, 'plugins', name)
    const source = readFileSync(file, 'utf8')
    if (!source.includes(old)) throw new Error(`${name} of the collection has no ${old}`)
    writeFileSync(file, source.replaceAll(old, corrected))
  }
}

/** The collection's modules without those that only have the older names of others, which begin with os_. */
function modulesOf(directory: string): string[] {
  return readdirSync(join(directory, COLLECTION, 'plugins/modules'))
    .flatMap(file => /^(\w+)\.py$/.exec(file)?.[1] ?? [])
    .filter(name => !/^(os_|__init__)/.test(name))
}

/** The modules that the playbooks use. */
function usedModules(): Set<string> {
  const playbooks = ['present', 'read'].map(name => readFileSync(join(here, 'ansible', `${name}.yml`), 'utf8'))
  return new Set([...playbooks.join('\n').matchAll(/openstack\.cloud\.(\w+):/g)].map(([, name]) => name!))
}
