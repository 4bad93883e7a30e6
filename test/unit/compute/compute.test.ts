import { execFileSync } from 'node:child_process'
import { hkdfSync } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import ssh2 from 'ssh2'
import t from 'tap'
import { amphoraIdentity, heartbeatKey, opensshPublicLine } from '../../../controller/compute/amphora-identity.js'
import type { MachineSpec } from '../../../controller/compute/driver.js'
import { machineDirectory } from '../../../controller/compute/host/machine-directory.js'
import { checkInotifyLimit, checkPriorities } from '../../../controller/compute/namespace/check-limits.js'
import { createNoopComputeDriver } from '../../../controller/compute/noop/driver.js'
import type { Port } from '../../../controller/network/driver.js'
import { createQueues } from '../../../controller/process/in-turn.js'
import { PLACEMENT } from '../../support/inputs/placement.js'

const master = Buffer.alloc(32, 7)
const AMPHORA = '0b1c5a3e-6a43-4d2e-9c67-0c5f1c6c4f10'

t.test('an amphora identity', async t => {
  t.test('depends only on the master key and the amphora id', async t => {
    const one = amphoraIdentity(master, AMPHORA)
    t.same(amphoraIdentity(master, AMPHORA), one)
    const others = [
      amphoraIdentity(Buffer.alloc(32, 8), AMPHORA),
      amphoraIdentity(master, '1b1c5a3e-6a43-4d2e-9c67-0c5f1c6c4f10'),
    ]
    for (const other of others) {
      t.notSame(other.sshHostKeyPublic, one.sshHostKeyPublic)
      t.notSame(other.heartbeatKey, one.heartbeatKey)
    }
    t.same(amphoraIdentity(master, AMPHORA.toUpperCase()), one, 'the case of the id does not matter')
  })

  t.test('has a host key that OpenSSH reads and whose public key is the pinned one', async t => {
    for (const id of [AMPHORA, 'a', 'ab', 'abc', 'abcdefg', 'abcdefgh']) {
      const identity = amphoraIdentity(master, id)
      const file = join(t.testdir({}), 'key')
      writeFileSync(file, identity.sshHostKeyPrivate, { mode: 0o600 })
      const line = execFileSync('ssh-keygen', ['-y', '-f', file], { encoding: 'utf8', timeout: 10_000 }).trim()
      t.equal(line, opensshPublicLine(identity.sshHostKeyPublic, id))
    }
  })

  t.test('has a host key that ssh2 reads and whose signatures verify', async t => {
    const identity = amphoraIdentity(master, AMPHORA)
    const key = ssh2.utils.parseKey(identity.sshHostKeyPrivate)
    if (key instanceof Error) throw key
    t.same(key.getPublicSSH(), identity.sshHostKeyPublic)
    const signature = key.sign('data') as Buffer | Error
    if (signature instanceof Error) throw signature
    t.equal(key.verify('data', signature), true)
  })

  t.test('has a host key file that contains no other key', async t => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 32, maxLength: 64 }), fc.uuid(), (bytes, id) => {
        const identity = amphoraIdentity(Buffer.from(bytes), id)
        const decoded = Buffer.from(identity.sshHostKeyPrivate.split('\n').slice(1, -2).join(''), 'base64')
        return !decoded.includes(identity.heartbeatKey) && !decoded.includes(Buffer.from(bytes))
      }),
      { numRuns: 20 },
    )
    t.pass('held')
  })

  t.test('is refused for a master key below 32 bytes', async t => {
    t.throws(() => amphoraIdentity(Buffer.alloc(16), AMPHORA), { message: /at least 32 bytes/ })
  })
})

t.test('heartbeat keys', async t => {
  t.test('are HKDF-SHA256 with the amphora id as salt, one per key id', async t => {
    const info = Buffer.concat([Buffer.from('lb-heartbeat'), Buffer.of(1)])
    t.same(heartbeatKey(master, 1, AMPHORA), Buffer.from(hkdfSync('sha256', master, AMPHORA, info, 32)))
    t.same(heartbeatKey(master, 1, AMPHORA), amphoraIdentity(master, AMPHORA).heartbeatKey)
    t.notSame(heartbeatKey(master, 2, AMPHORA), heartbeatKey(master, 1, AMPHORA))
  })
})

t.test('the noop driver', async t => {
  const driver = createNoopComputeDriver()
  const spec = { amphoraId: AMPHORA, placement: PLACEMENT } as MachineSpec
  const machine = { amphoraId: AMPHORA, driver: 'noop', computeId: AMPHORA, name: 'noop', state: 'running' }

  t.test('finds every amphora running, but lists only those that it created', async t => {
    t.same(await driver.find(AMPHORA), machine)
    t.same(await driver.list(), [], 'lists only what it created')
    const created = { ...machine, zone: 'local', image: null }
    t.same(await driver.create(spec), created)
    t.same(await driver.create(spec), created)
    t.same(await driver.list(), [machine])
  })

  t.test('remembers which ports are plugged until the amphora is deleted', async t => {
    const fixedIps = [{ subnetId: 's', address: '192.0.2.1' }]
    const port = { id: 'a', fixedIps, allowedAddresses: ['192.0.2.2'] } as Partial<Port> as Port
    await driver.plug(AMPHORA, port, 'tests')
    await driver.plug(AMPHORA, port, 'tests')
    await driver.plug(AMPHORA, { ...port, id: 'b' }, 'tests')
    await driver.unplug(AMPHORA, 'b')
    await driver.unplug('another', 'b')
    t.same(await driver.pluggedPorts(AMPHORA), [{ id: 'a', addresses: ['192.0.2.1', '192.0.2.2'] }])
    await driver.delete(AMPHORA)
    await driver.delete(AMPHORA)
    t.same(await driver.pluggedPorts(AMPHORA), [])
    t.same(await driver.list(), [])
  })
})

t.test('queues', async t => {
  t.test(
    'run tasks with the same key one after another, even after a failure, and other tasks in parallel',
    async t => {
      const inTurn = createQueues()
      const events: string[] = []
      let release = () => {}
      const held = new Promise<void>(resolve => {
        release = resolve
      })
      const first = inTurn('a', async () => {
        await held
        events.push('first')
        throw new Error('first fails')
      })
      const second = inTurn('a', async () => events.push('second'))
      await inTurn('b', async () => events.push('other'))
      release()
      await t.rejects(first, { message: 'first fails' })
      await second
      t.same(events, ['other', 'first', 'second'])
    },
  )
})

t.test('the record of a machine', async t => {
  const own = () => {
    const stat = readFileSync('/proc/self/stat', 'utf8')
    const ticks = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
    return { ticks, boot: readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim() }
  }

  t.test('names its process only while that process lives', async t => {
    const directory = t.testdir({})
    const files = machineDirectory(directory)
    const { ticks, boot } = own()
    const records: [string, number | null][] = [
      [`${process.pid} ${ticks} ${boot}\n`, process.pid],
      [`${process.pid} ${Number(ticks) + 1} ${boot}\n`, null],
      [`${process.pid} ${ticks} 00000000-0000-0000-0000-000000000000\n`, null],
      [`${process.pid}\n`, null],
      [`99999999 ${ticks} ${boot}\n`, null],
      [`0 ${ticks} ${boot}\n`, null],
      ['', null],
      ['nonsense of three words\n', null],
    ]
    t.equal(files.holder(), null, 'no record')
    for (const [record, expected] of records) {
      writeFileSync(join(directory, 'process'), record)
      t.equal(files.holder(), expected, JSON.stringify(record))
    }
  })

  t.test('distinguishes the management port from plugged ports', async t => {
    const files = machineDirectory(join(t.testdir({}), 'machine'))
    t.same(files.recordedPorts(), [])
    t.equal(files.exists(), false)
    files.prepare()
    files.recordPort('m', 'management')
    files.recordPort('p', 'plugged')
    t.same(files.recordedPorts().sort(), ['m', 'p'])
    t.same(files.recordedPorts('plugged'), ['p'])
    t.same(files.recordedAddresses('p'), null)
    files.recordPort('p', 'plugged', ['192.0.2.1', '2001:db8::1'])
    t.same(files.recordedPorts('plugged'), ['p'])
    t.same(files.recordedAddresses('p'), ['192.0.2.1', '2001:db8::1'])
    files.forgetPort('p')
    files.forgetPort('p')
    t.same(files.recordedPorts('plugged'), [])
    files.remove()
    t.equal(files.exists(), false)
  })
})

t.test('the doctor reports a host with few inotify watches', async t => {
  t.same(checkInotifyLimit(8_192), [])
  t.match(checkInotifyLimit(128), [{ state: 'note', text: /128 inotify/, remedy: /fs\.inotify/ }])
})

t.test('the doctor reports a host whose autogroups limit thread priorities to one process', async t => {
  t.match(checkPriorities('1\n', false), [{ state: 'note', text: /autogroups/, remedy: /sched_autogroup_enabled=0/ }])
  for (const [autogroups, inGroup] of [
    ['0\n', false],
    ['1\n', true],
    [null, false],
  ] as const) {
    t.same(checkPriorities(autogroups, inGroup), [])
  }
})
