import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { createLog } from '../../../controller/log/log.js'
import { isInstalled } from '../../../controller/ovn/southbound/installed.js'
import { Southbound } from '../../../controller/ovn/southbound/southbound.js'
import { ovsdbServer } from '../../support/services/ovsdb.js'

const run = promisify(execFile)

t.test('a change is installed once northd and every hypervisor that is not away have it', async t => {
  const directory = mkdtempSync(join(tmpdir(), 'sb-'))
  const [database, path] = [join(directory, 'sb.db'), join(directory, 'sb.sock')]
  await run('ovsdb-tool', ['create', database, '/usr/share/ovn/ovn-sb.ovsschema'])
  const server = ovsdbServer(directory, { database, address: { kind: 'unix', path }, remotes: [`punix:${path}`] })
  t.teardown(async () => {
    await server.end()
    rmSync(directory, { recursive: true, force: true })
  })
  await server.start()
  const sb = (...words: string[]) => run('ovn-sbctl', [`--db=unix:${path}`, ...words])
  await sb('init')
  for (const [index, name] of ['one', 'two'].entries()) {
    await sb('chassis-add', name, 'geneve', `127.0.0.${index + 1}`)
    const { stdout } = await sb('--bare', '--columns=_uuid', 'find', 'chassis', `name=${name}`)
    await sb('create', 'chassis_private', `name=${name}`, `chassis=${stdout.trim()}`)
  }
  const northdHas = (change: number) => sb('set', 'sb_global', '.', `nb_cfg=${change}`)
  const hypervisorHas = (name: string, change: number) => sb('set', 'chassis_private', name, `nb_cfg=${change}`)
  const southbound = new Southbound({ addresses: [{ kind: 'unix', path }], log: createLog('test', 'silent') })
  t.teardown(() => southbound.stop())
  await southbound.client.ready(5_000)
  const installed = async (change: number, limits: object) => {
    const { isComputed, behind, away } = await southbound.installed(change, limits)
    const names = (chassis: readonly { name: string }[]) => chassis.map(({ name }) => name).sort()
    return { isComputed, behind: names(behind), away: names(away) }
  }
  const soon = { computeMs: 100, installMs: 100 }
  const long = { computeMs: 20_000, installMs: 20_000 }

  await t.test('northd that is late says nothing of the hypervisors', async t => {
    t.same(await installed(1, soon), { isComputed: false, behind: ['one', 'two'], away: [] })
    await northdHas(1)
    t.same(await installed(1, soon), { isComputed: true, behind: ['one', 'two'], away: [] })
  })

  await t.test('one that does not have a change in time is away, if others have it', async t => {
    await hypervisorHas('one', 1)
    t.same(await installed(1, soon), { isComputed: true, behind: [], away: ['two'] })
  })

  await t.test('nobody waits for one that is away, until it is back', async t => {
    await northdHas(2)
    const waiting = installed(2, long)
    await hypervisorHas('one', 2)
    t.same(await waiting, { isComputed: true, behind: [], away: ['two'] })
    await hypervisorHas('two', 2)
    await northdHas(3)
    await hypervisorHas('one', 3)
    const waitingForBoth = installed(3, long)
    await hypervisorHas('two', 3)
    t.same(await waitingForBoth, { isComputed: true, behind: [], away: [] })
  })

  await t.test('what no hypervisor has is not installed, also if all others are away', async t => {
    await northdHas(4)
    await hypervisorHas('one', 4)
    t.same(await installed(4, soon), { isComputed: true, behind: [], away: ['two'] })
    await northdHas(5)
    const progress = await southbound.installed(5, { computeMs: 100, installMs: 100 })
    t.match(progress, { behind: [{ name: 'one' }], away: [{ name: 'two' }], isCarriedOut: false })
    t.equal(isInstalled(progress), false)
    const waiting = installed(5, long)
    await hypervisorHas('one', 5)
    t.same(await waiting, { isComputed: true, behind: [], away: ['two'] })
  })

  await t.test('a hypervisor that has lost its switch meanwhile tells with the next change', async t => {
    await northdHas(6)
    let raised = 0
    const waiting = southbound.installed(6, {
      raise: async () => {
        raised += 1
        await northdHas(7)
        for (const name of ['one', 'two']) await hypervisorHas(name, 7)
      },
    })
    t.match(await waiting, { isComputed: true, behind: [], away: [], isCarriedOut: true })
    t.equal(raised, 1)
  })

  await t.test('a northbound database that is made anew counts from its beginning', async t => {
    await northdHas(1)
    await hypervisorHas('one', 1)
    await hypervisorHas('two', 0)
    t.same(await installed(1, soon), { isComputed: true, behind: [], away: ['two'] })
    await northdHas(2)
    await hypervisorHas('one', 2)
    await hypervisorHas('two', 2)
    t.same(await installed(2, soon), { isComputed: true, behind: [], away: [] })
  })
})
