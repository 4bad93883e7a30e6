import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { ComputeUnavailable } from '../../../controller/compute/driver.js'
import type { ComputeContext } from '../../../controller/compute/kind.js'
import { createMachines } from '../../../controller/compute/machines.js'
import { NamespaceDriver } from '../../../controller/compute/namespace/driver.js'
import { namespaceKind } from '../../../controller/compute/namespace/kind.js'
import { findRootImage } from '../../../controller/compute/namespace/root-image.js'
import { SshAgentConnections } from '../../../controller/provider/amphora/agent/connection.js'
import { imageManifest } from '../../support/inputs/image-manifest.js'
import { SHARES } from '../../support/worlds/machine-shares.js'
import { asOperator, createLab, createPort, quiet } from '../../support/worlds/machines.js'
import { bundle } from '../../support/worlds/programs.js'

const programs = t.testdir({})
await bundle({ agent: join(import.meta.dirname, '../../../amphora-agent/main.ts') }, programs)
const agentBundle = join(programs, 'agent.mjs')
const lab = await createLab({ agentBundle })
t.teardown(() => lab.destroy())

t.test('machines of two drivers stand side by side', async t => {
  const other = await createLab({ agentBundle })
  t.teardown(() => other.destroy())
  const [mine, theirs] = [lab.amphora(), other.amphora()]
  const drivers = { namespace: lab.driver, another: other.driver }
  const rows = new Map([
    [mine.target.amphoraId, 'namespace'],
    [theirs.target.amphoraId, 'another'],
  ])
  const machines = createMachines({
    kinds: Object.entries(drivers).map(([name, opened]) => ({ ...namespaceKind, name, open: async () => opened })),
    context: {} as ComputeContext,
    driverOf: async id => rows.get(id) ?? null,
    log: quiet,
  })
  const placement = { ...theirs.spec.placement, driver: 'another' }
  await Promise.all([machines.create(mine.spec), machines.create({ ...theirs.spec, placement })])
  t.same((await machines.list()).map(({ amphoraId }) => amphoraId).sort(), [...rows.keys()].sort())
  t.equal(await asOperator(mine.target, lab.operatorKey, 'echo here'), 'here\n')
  t.equal(await asOperator(theirs.target, other.operatorKey, 'echo there'), 'there\n')
  const port = createPort(randomUUID(), '192.0.2.7')
  await machines.plug(theirs.target.amphoraId, port, 'tests')
  t.match(await machines.pluggedPorts(theirs.target.amphoraId), [{ id: port.id }])
  t.same(await machines.pluggedPorts(mine.target.amphoraId), [])
  await machines.delete(theirs.target.amphoraId)
  t.equal(await other.driver.find(theirs.target.amphoraId), null)
  t.match(await machines.find(mine.target.amphoraId), { state: 'running' })
  rows.clear()
  await machines.delete(mine.target.amphoraId)
  t.same(await machines.list(), [], 'without a row, too')
})

const repository = join(import.meta.dirname, '../../..')
const ID = 'ab'.repeat(32)
const mounts: string[] = []

/** An image with this host's programs and an /etc of its own, which lacks a file that the controller's images have. */
function buildImage(directory: string, id = ID): void {
  const root = join(directory, 'rootfs')
  const own = join(root, 'opt/krater')
  for (const path of ['usr', 'opt/krater']) mkdirSync(join(root, path), { recursive: true })
  execFileSync('mount', ['--bind', '/usr', join(root, 'usr')])
  mounts.push(join(root, 'usr'))
  for (const name of ['bin', 'sbin', 'lib', 'lib64']) symlinkSync(readlinkSync(`/${name}`), join(root, name))
  cpSync(join(repository, 'images/amphora/etc'), join(own, 'etc'), { recursive: true })
  rmSync(join(own, 'etc/nsswitch.conf'))
  writeFileSync(join(own, 'etc/hosts'), `127.0.0.1 localhost of-image-${id.slice(0, 2)}\n`)
  for (const path of ['ld.so.cache', 'ssl/certs', 'ssl/openssl.cnf', 'haproxy/errors'])
    cpSync(join('/etc', path), join(root, 'etc', path), { recursive: true, verbatimSymlinks: true })
  for (const name of ['agent.sh', 'init.sh', 'management.sh'])
    cpSync(join(repository, 'images/amphora', name), join(own, name))
  cpSync(agentBundle, join(own, 'agent.mjs'))
  symlinkSync(realpathSync(process.execPath), join(own, 'node'))
  writeFileSync(join(directory, 'manifest.json'), imageManifest({ id }))
}

t.test('a machine in namespaces runs on the root file system of an image', async t => {
  // Not a directory of tap, which would be removed with the mounts in it.
  const state = mkdtempSync(join(tmpdir(), 'krater-image-root-'))
  mkdirSync(join(state, 'images'))
  const imageAt = (name: string) => join(state, 'images', name)
  t.teardown(() => {
    for (const mount of mounts) execFileSync('umount', [mount])
    rmSync(state, { recursive: true, force: true })
  })
  const driver = new NamespaceDriver({
    ...{ instance: lab.instance, directory: lab.directory, fabric: lab.fabric, agentBundle, ...SHARES, log: quiet },
    networkMtu: async () => 1500,
    portFilters: async () => null,
    findImage: tag => findRootImage(state, tag),
  })
  const { spec, target } = lab.amphora()
  const inside = (command: string) => asOperator(target, lab.operatorKey, command)
  const tagged = (imageTag: string) => ({ ...spec, placement: { ...spec.placement, imageTag } })
  const agents = new SshAgentConnections({ controllerKey: lab.controllerKey, log: quiet })
  t.teardown(() => agents.stop())

  await t.test('which must be there if its flavor names it', async t => {
    await t.rejects(
      driver.create(tagged('beta')),
      new ComputeUnavailable(
        'There is no amphora image with the tag beta. Build one with `npm run images` and take it with `krater image import`.',
      ),
    )
    t.match(await driver.create(spec), { image: null }, 'without a name, and without an image, on the host’s')
    t.notMatch(await inside('cat /etc/hosts'), /of-image/)
    await driver.delete(spec.amphoraId)
  })

  await t.test('with its files, its agent and its node', async t => {
    buildImage(imageAt(`.${ID}`))
    symlinkSync(`.${ID}`, imageAt('amphora'))
    t.match(await driver.create(spec), { image: { tag: 'amphora', id: ID } })
    t.match(await inside('cat /etc/hosts'), /of-image-ab/)
    t.match(await inside('ls /etc/nsswitch.conf 2>&1 || true'), /No such file/, 'an older image lacks newer files')
    t.match(await inside('grep -c /rootfs/opt/krater/agent.mjs /proc/self/mountinfo'), /^[1-9]/)
    const hello = await agents.request(target, { verb: 'hello' }, { timeoutMs: 20_000 })
    t.match(hello, { haproxyVersion: /^\d/ })
    t.match(await inside('touch /usr/x; touch /opt/krater/agent.mjs 2>&1 || echo refused'), /refused/)
  })

  await t.test('and keeps it while it runs, whatever the tag leads to by then', async t => {
    buildImage(imageAt(`.${'cd'.repeat(32)}`), 'cd'.repeat(32))
    symlinkSync(`.${'cd'.repeat(32)}`, imageAt('.new'))
    renameSync(imageAt('.new'), imageAt('amphora'))
    t.match(await driver.create(spec), { image: { tag: 'amphora', id: ID } })
    t.match(await inside('cat /etc/hosts'), /of-image-ab/)
    await driver.delete(spec.amphoraId)
    t.match(await driver.create(spec), { image: { id: 'cd'.repeat(32) } }, 'once it starts again, it runs the newest')
    t.match(await inside('cat /etc/hosts'), /of-image-cd/)
    await driver.delete(spec.amphoraId)
  })

  await t.test('unless the image is not complete, or of other processors', async t => {
    const manifest = join(imageAt('amphora'), 'manifest.json')
    writeFileSync(manifest, imageManifest({ architecture: 's390x' }))
    await t.rejects(driver.create(spec), { message: /is one for s390x, not for this host/ })
    writeFileSync(manifest, '{}')
    await t.rejects(driver.create(spec), {
      message: /not complete: it lacks a manifest that can be read\. Import it again/,
    })
    await driver.delete(spec.amphoraId)
  })
})
