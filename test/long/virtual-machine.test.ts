import { execFile } from 'node:child_process'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { ask } from '../../controller/cli/commands/demo/traffic.js'
import { balancersOf } from '../support/faults/crash-balancer.js'
import { createSites } from '../support/services/web-servers.js'
import { createKrater, until } from '../support/worlds/krater.js'
import { builtImage } from '../support/worlds/virtual-driver.js'

const run = promisify(execFile)

t.test('a load balancer in a virtual machine', async t => {
  const image = builtImage()
  const krater = await createKrater(t, {
    KRATER_COMPUTE_DRIVER: 'qemu',
    KRATER_COMPUTE_ACCELERATION: 'tcg',
    KRATER_COMPUTE_WARM_AMPHORAE: '0',
  })
  await krater.up()
  const imported = await krater.command('image', 'import', join(import.meta.dirname, '../../images/out'))
  t.match(imported, { status: 0, stdout: image.id.slice(0, 12) })
  const [api, admin] = await Promise.all([krater.api(), krater.api('krater-admin')])
  const { one } = await createSites(t, krater, ['one'])
  const { subnets } = (await api.request('network', 'GET', '/v2.0/subnets?name=public-subnet')) as {
    subnets: { id: string }[]
  }
  const balancers = balancersOf(api, subnets[0]!.id)
  const started = performance.now()
  const balancer = await balancers.create('virtual', [one])
  await balancers.untilServing(balancer, [one])
  t.comment(`serves after ${Math.round(performance.now() - started)} ms`)

  const { amphorae } = (await admin.request('load-balancer', 'GET', '/v2.0/octavia/amphorae')) as {
    amphorae: { id: string; image_id: string; compute_flavor: string }[]
  }
  const [amphora] = amphorae
  const id = amphora?.id ?? ''
  t.match(amphorae, [{ compute_flavor: 'qemu' }])
  t.equal(amphora?.image_id.replaceAll('-', ''), image.id.slice(0, 32), 'a UUID of half its hash')

  t.test('whose QEMU has no rights, and no file of the state directory', async t => {
    const { stdout } = await run('ip', ['netns', 'pids', `krater-${krater.instance()}-vm-${id}`])
    const pids = stdout.split('\n').filter(Boolean)
    const [qemu] = pids.filter(pid => readFileSync(`/proc/${pid}/comm`, 'utf8').startsWith('qemu'))
    const status = readFileSync(`/proc/${qemu}/status`, 'utf8')
    t.match(status, /^Uid:\t19\d{8}\t19\d{8}\t/m)
    t.match(status, /^CapEff:\t0000000000000000$/m)
    t.match(status, /^CapBnd:\t0000000000000000$/m)
    t.match(status, /^NoNewPrivs:\t1$/m)
    t.match(status, /^Seccomp:\t2$/m)
    t.notMatch(readFileSync(`/proc/${qemu}/mounts`, 'utf8'), 'machines/', 'no mount of the state directory')
    const { stdout: interfaces } = await run('ip', ['-n', `krater-${krater.instance()}-vm-${id}`, '-o', 'link'])
    t.match(interfaces, /^1: lo:[^\n]*\n$/, 'its network has no interface')
    t.equal(statSync(join(krater.directory, 'machines', id, 'monitor')).uid, 0)
  })

  t.test('serves while all of Krater is dead, and is found again', async t => {
    const before = await krater.command('amphora', 'list')
    for (const name of new Set(krater.running())) krater.kill(name)
    krater.kill('postgres')
    await until('every process has ended', () => krater.running().length === 0)
    t.equal((await ask(balancer.url))?.status, 200)
    await krater.up()
    t.equal((await ask(balancer.url))?.status, 200)
    t.match(before.stdout, id)
    t.match((await krater.command('amphora', 'list')).stdout, id)
    t.equal((await ask(balancer.url))?.status, 200)
  })

  t.test('leaves nothing behind', async t => {
    await balancers.remove(balancer)
    await until('it is gone', async () => (await balancers.find('virtual')) === null)
    t.notOk((await run('ip', ['netns', 'list'])).stdout.includes(id))
  })
})
