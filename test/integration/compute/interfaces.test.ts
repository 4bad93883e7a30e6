import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import t from 'tap'
import { addressesOf } from '../../../controller/network/driver.js'
import { ip } from '../../support/worlds/ip.js'
import { asOperator, createLab, createPort, eventually } from '../../support/worlds/machines.js'
import { bundle } from '../../support/worlds/programs.js'

const programs = t.testdir({})
await bundle({ agent: join(import.meta.dirname, '../../../amphora-agent/main.ts') }, programs)
const agentBundle = join(programs, 'agent.mjs')
const lab = await createLab({ agentBundle })
const { driver, fabric, operatorKey } = lab
const PROJECT = 'tests'
t.teardown(lab.destroy)

t.test('interfaces', async t => {
  const networkId = randomUUID()
  const peer = `kt${lab.instance}-peer`
  const { spec, target } = lab.amphora()
  const { amphoraId } = target
  const port = createPort(networkId, '198.51.100.10')
  const inside = (command: string) => asOperator(target, operatorKey, command)
  t.before(async () => {
    await driver.create(spec)
    ip('netns', 'add', peer)
    const peerPort = createPort(networkId, '198.51.100.20')
    await fabric.attach({
      networkId,
      mtu: 1500,
      portId: peerPort.id,
      macAddress: peerPort.macAddress,
      addresses: ['198.51.100.20'],
      namespace: peer,
      interfaceName: 'eth0',
    })
    execFileSync('ip', ['-n', peer, '-batch', '-'], {
      input: 'address add 198.51.100.20/24 dev eth0\nlink set eth0 up\n',
    })
  })
  t.teardown(async () => {
    await driver.delete(amphoraId)
    ip('netns', 'delete', peer)
  })

  const pluggedIds = async () => (await driver.pluggedPorts(amphoraId)).map(({ id }) => id)

  t.test('are plugged with the MAC address of the port, and carry traffic', async t => {
    await driver.plug(amphoraId, port, PROJECT)
    await driver.plug(amphoraId, port, PROJECT)
    t.same(await pluggedIds(), [port.id])
    const name = /: (\S+)@.*/.exec(await inside(`ip -o link | grep -i ${port.macAddress}`))?.[1]
    t.ok(name)
    await inside(`ip link set ${name} name vip0 && ip address add 198.51.100.10/24 dev vip0 && ip link set vip0 up`)
    t.throws(
      () => ip('netns', 'exec', peer, 'socat', '-T2', '-', 'TCP:198.51.100.10:22,connect-timeout=2'),
      'sshd listens on the management address only',
    )
    await inside(
      'socat TCP-LISTEN:8080,bind=198.51.100.10,reuseaddr SYSTEM:"echo it is me" >/dev/null 2>&1 & sleep 0.3',
    )
    t.equal(ip('netns', 'exec', peer, 'socat', '-T5', '-', 'TCP:198.51.100.10:8080'), 'it is me\n')
    await driver.plug(amphoraId, port, PROJECT)
    t.match(await inside('ip -o -4 address show dev vip0'), /198.51.100.10/, 'an interface in use is not changed')
  })

  t.test('may send from an address that their port got later, once they are plugged again', async t => {
    const second = '198.51.100.11'
    const ask = () => inside(`socat -u TCP:198.51.100.20:9,bind=${second},connect-timeout=1 - 2>&1 || true`)
    const grown = { ...port, fixedIps: [...port.fixedIps, { ...port.fixedIps[0]!, address: second }] }
    t.same(await driver.pluggedPorts(amphoraId), [{ id: port.id, addresses: addressesOf(port) }])
    await inside(`ip address add ${second}/24 dev vip0`)
    t.match(await ask(), /timed out/)
    await driver.plug(amphoraId, grown, PROJECT)
    t.match(await ask(), /refused/, 'the other machine gets the packet and refuses the connection')
    t.same(await driver.pluggedPorts(amphoraId), [{ id: port.id, addresses: addressesOf(grown) }])
    t.match(await inside('ip -o -4 address show dev vip0'), /198.51.100.10/, 'the interface keeps its addresses')
  })

  t.test('are unplugged without touching the others', async t => {
    const other = createPort(randomUUID(), '203.0.113.10')
    await driver.plug(amphoraId, other, PROJECT)
    t.same((await pluggedIds()).sort(), [port.id, other.id].sort())
    await driver.unplug(amphoraId, port.id)
    await driver.unplug(amphoraId, port.id)
    await driver.unplug(amphoraId, spec.managementPort.id)
    t.same(await pluggedIds(), [other.id])
    t.notMatch(await inside('ip -o link'), port.macAddress, 'the management interface remains')
    t.match(await inside('ip -o link'), other.macAddress)
  })

  t.test('taken down or removed from outside count as broken until they are plugged again', async t => {
    const other = createPort(randomUUID(), '192.0.2.10')
    await driver.plug(amphoraId, other, PROJECT)
    const others = (await pluggedIds()).filter(portId => portId !== other.id)
    t.same(await driver.brokenInterfaces(), [])
    const nic = `p${other.id.replaceAll('-', '').slice(0, 11)}`
    const faults = {
      down: () => ip('-n', fabric.namespace, 'link', 'set', nic, 'down'),
      'off its bridge': () => ip('-n', fabric.namespace, 'link', 'set', nic, 'nomaster'),
      gone: () => ip('-n', fabric.namespace, 'link', 'delete', nic),
    }
    for (const [name, fault] of Object.entries(faults)) {
      fault()
      t.same(await pluggedIds(), others, name)
      t.same(await driver.brokenInterfaces(), [amphoraId], name)
      await driver.plug(amphoraId, other, PROJECT)
      t.same((await pluggedIds()).sort(), [...others, other.id].sort(), name)
      t.same(await driver.brokenInterfaces(), [], name)
    }
    ip('-n', fabric.namespace, 'link', 'delete', nic)
    await driver.unplug(amphoraId, other.id)
    t.same(await driver.brokenInterfaces(), [], 'an unplugged interface is not reported')
  })

  t.test('are removed when a machine is recreated', async t => {
    await driver.plug(amphoraId, port, PROJECT)
    process.kill(lab.firstProcessOf(amphoraId), 'SIGKILL')
    await eventually('the machine is stopped', async () => (await driver.find(amphoraId))?.state === 'stopped' || null)
    t.same(await pluggedIds(), [])
    await driver.create(spec)
    t.same(await pluggedIds(), [])
    await driver.plug(amphoraId, port, PROJECT)
    t.match(await inside('ip -o link'), port.macAddress)
  })
})
