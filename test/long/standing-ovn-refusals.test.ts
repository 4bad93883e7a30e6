import { existsSync, mkdirSync, renameSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.js'
import { ownPorts } from '../support/ports.js'
import { ovsdbServer, tlsWords } from '../support/services/ovsdb.js'
import { createKrater } from '../support/worlds/krater.js'
import { run } from '../support/worlds/standing-ovn/daemon.js'
import { startStandingOvn } from '../support/worlds/standing-ovn/standing-ovn.js'

/** A switch's database with a name as a chassis that OVN does not know. */
async function startStranger(t: Test, directory: string): Promise<string> {
  mkdirSync(directory)
  const [database, path] = [join(directory, 'conf.db'), join(directory, 'db.sock')]
  await run('ovsdb-tool', ['create', database, '/usr/share/openvswitch/vswitch.ovsschema'])
  const server = ovsdbServer(directory, { database, address: { kind: 'unix', path }, remotes: [`punix:${path}`] })
  t.teardown(() => server.end('SIGKILL'))
  await server.start()
  const words = ['--no-wait', 'init', '--', 'set', 'open_vswitch', '.', 'external_ids:system-id=stranger']
  await run('ovs-vsctl', [`--db=unix:${path}`, ...words])
  return `unix:${path}`
}

/** What the note says to do with rows that stay. */
async function removalByHand(id: string): Promise<string> {
  const note = await readFile('docs/ovn.md', 'utf8')
  const words = /```sh\n(for table in .*?)```/s.exec(note)?.[1]
  if (words === undefined) throw new Error('docs/ovn.md does not say how to remove rows')
  return words.replace('=ID ', `=${id} `)
}

t.test('`krater up` says what is wrong with an OVN that stands, and what to do', async t => {
  const ovn = await startStandingOvn(t)
  const theirs = await ovn.foreignRows()
  const krater = await createKrater(t, { ...ovn.settings, KRATER_COMPUTE_WARM_AMPHORAE: '0' })
  const up = async (settings: Readonly<Record<string, string>>) => {
    const right = { ...krater.environment }
    Object.assign(krater.environment, settings)
    const { status, stderr } = await krater.command('up', '--detach')
    Object.assign(krater.environment, right)
    return { status, text: stderr.replace(/\s+/g, ' ') }
  }
  const refuses = async (t: Test, settings: Readonly<Record<string, string>>, words: RegExp) =>
    t.match(await up(settings), { status: 1, text: words })
  const [port] = await ownPorts(1)
  const nobody = `ssl:127.0.0.1:${port}`
  const stranger = await startStranger(t, join(ovn.directory, 'stranger'))

  await t.test('settings that do not go together', async t => {
    await refuses(t, { KRATER_OVN_SOUTHBOUND: '' }, /northbound and southbound belong together/)
    await refuses(t, { KRATER_OVN_CA_FILE: '' }, /ssl: needs certificate_file, key_file and ca_file/)
    await refuses(t, { KRATER_OVN_NORTHBOUND: 'https://ovn' }, /addresses such as ssl:192\.0\.2\.1:6641/)
  })

  await t.test('certificates', async t => {
    const { certificate, key, ca } = ovn.strangers
    await refuses(t, { KRATER_OVN_KEY_FILE: '/nowhere' }, /\/nowhere cannot be read: .* settings `ovn`/)
    await refuses(t, { KRATER_OVN_KEY_FILE: key }, /cannot be used together: .*mismatch/)
    await refuses(t, { KRATER_OVN_CA_FILE: ca }, /its certificate is not by an authority in ovn\.ca_file/)
    await refuses(
      t,
      { KRATER_OVN_CERTIFICATE_FILE: certificate, KRATER_OVN_KEY_FILE: key },
      /it does not accept Krater's certificate \(unknown ca\): see ovn\.certificate_file/,
    )
  })

  await t.test('a database or switch that is not there', async t => {
    await refuses(
      t,
      { KRATER_OVN_NORTHBOUND: nobody },
      /OVN_Northbound database cannot be used: .*ECONNREFUSED.* What to do: see the settings `ovn`, and whether its servers run/,
    )
    await refuses(t, { KRATER_OVN_NORTHBOUND: ovn.southbound.addresses }, /it has no database OVN_Northbound/)
    await refuses(
      t,
      { KRATER_OVN_SWITCH: 'unix:/nowhere/db.sock' },
      /\/nowhere\/db\.sock cannot be reached: .* What to do: start Open vSwitch on this host, or let ovn\.switch name/,
    )
    await refuses(
      t,
      { KRATER_OVN_SWITCH: stranger },
      /is no chassis of this OVN: its system-id is stranger, and the chassis are one\. What to do: set system-id/,
    )
  })

  await t.test('another OVN than the one that has the networks', async t => {
    t.match(await up({}), { status: 0 })
    t.match(await krater.command('down'), { status: 0 })
    const record = join(krater.directory, 'standing-ovn.json')
    renameSync(record, `${record}.kept`)
    await refuses(t, {}, /rows with external_ids:"krater:instance"=.* A copy of its state directory may be in use/)
    renameSync(`${record}.kept`, record)
    await refuses(t, { KRATER_OVN_NORTHBOUND: nobody }, /ovn\.northbound names no server of it/)
    await refuses(t, { KRATER_OVN_SWITCH: stranger }, /ovn\.switch names no server of it/)
    await refuses(
      t,
      { KRATER_NETWORK_DRIVER: 'local' },
      /are in OVN, .* Set it back, or remove everything with `krater down --all`/,
    )
    const [first = ''] = ovn.northbound.addresses.split(',')
    t.match(await up({ KRATER_OVN_NORTHBOUND: `${first},${nobody}` }), { status: 0 }, 'other servers of it are fine')
  })

  await t.test('what stays in an OVN that cannot be reached when Krater is removed', async t => {
    const id = krater.instance()
    for (const server of ovn.northbound.servers) await server.end('SIGKILL')
    await ovn.chassis.vswitchd.control('exit', '--cleanup')
    await eventually('its interfaces are gone', () => !existsSync(`/sys/class/net/kr${id}-mgmt`))
    await ovn.chassis.database.end('SIGKILL')
    const { status, stdout } = await krater.command('down', '--all', '--yes')
    t.equal(status, 0)
    t.match(stdout, new RegExp(`rows of this installation stay in the OVN at ssl:.*krater:instance=${id}`))
    t.match(stdout, new RegExp(`Interfaces of this installation stay in .*krater-instance=${id}`))
    t.match(stdout, /Removed everything/)

    await Promise.all(ovn.northbound.servers.map(server => server.start()))
    await ovn.northbound.leader()
    t.ok((await ovn.kraterRows()) > 0)
    await run('sh', ['-euc', await removalByHand(id)], {
      env: { ...process.env, OVN_NB_DB: ovn.northbound.addresses, OVN_NBCTL_OPTIONS: tlsWords(ovn.files).join(' ') },
    })
    t.equal(await ovn.kraterRows(), 0, 'the words of the note remove it')
    t.equal(await ovn.foreignRows(), theirs)
  })
})
