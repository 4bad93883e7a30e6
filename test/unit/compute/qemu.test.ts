import { execFileSync, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { closeSync, existsSync, openSync, realpathSync, truncateSync, writeFileSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import * as z from 'zod'
import { judgeProof, QEMU } from '../../../controller/compute/qemu/acceleration.js'
import { askMachine, createAnswerReader } from '../../../controller/compute/qemu/ask-machine.js'
import { checkMemory } from '../../../controller/compute/qemu/check-host.js'
import { commandLine } from '../../../controller/compute/qemu/command-line.js'
import { createDisk, mayGrowBy, requireRoom } from '../../../controller/compute/qemu/disk-room.js'
import { findMachineImage } from '../../../controller/compute/qemu/image.js'
import { memoryForMachines, requireMemory } from '../../../controller/compute/qemu/memory.js'
import { freeSlot, peripheralsIn, removeSeed } from '../../../controller/compute/qemu/peripherals.js'
import { PROOF_STATUS, proofFirmware } from '../../../controller/compute/qemu/proof-firmware.js'
import { type Qmp, QmpRefused, withQmp } from '../../../controller/compute/qemu/qmp/client.js'
import { createMessageReader, parseMessage, QmpProtocolError } from '../../../controller/compute/qemu/qmp/messages.js'
import { eventually } from '../../support/eventually.js'
import { imageManifest } from '../../support/inputs/image-manifest.js'

const GREETING =
  '{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": ""}, "capabilities": ["oob"]}}'

/** A directory, and how to name a socket in it for listening: a socket's path may have 107 characters only. */
function openDirectory(t: Test) {
  const directory = t.testdir({})
  const handle = openSync(directory, 'r')
  t.teardown(() => closeSync(handle))
  return { directory, short: (name: string) => `/proc/self/fd/${handle}/${name}` }
}

t.test('QEMU’s arguments', async t => {
  const shape = { name: 'krater-abcde-vm-1', memoryMiB: 512, cores: 2, kernelOptions: 'console=ttyS0 quiet' }
  const line = commandLine({ ...shape, acceleration: 'tcg' })
  const valuesOf = (option: string) => line.flatMap((word, index) => (word === option ? [line[index + 1] ?? ''] : []))

  t.test('confine it', async t => {
    t.same(valuesOf('-sandbox'), ['on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'])
    for (const flag of ['-no-user-config', '-nodefaults', '-S']) t.ok(line.includes(flag), flag)
    t.notMatch(line.join(' '), /hostfwd|-netdev|vnc|spice|daemonize/, 'no network and no display of its own')
    for (const file of valuesOf('-blockdev').flatMap(word => /filename=([^,]+)/.exec(word)?.[1] ?? []))
      t.match(file, /^\/dev\/fdset\/[1-3]$/, 'it opens disks by number only')
  })
  t.test('give the machine its size, its disk and the seed, and a slot for each interface', async t => {
    t.same([valuesOf('-m'), valuesOf('-smp')], [['512'], ['2']])
    t.match(valuesOf('-blockdev').join(' '), /node-name=base,file=base-file,read-only=on/, 'the image stays as it is')
    const devices = valuesOf('-device')
    t.equal(devices.filter(word => word.startsWith('pcie-root-port,')).length, 10)
    t.equal(new Set(devices.flatMap(word => /addr=([^,]+)/.exec(word)?.[1] ?? [])).size, 12, 'no address twice')
    t.ok(devices.includes('virtio-blk-pci,id=seed,drive=seed,bus=slot9'))
  })
  t.test('say how its processors run', async t => {
    t.match(valuesOf('-accel'), ['tcg,thread=multi,tb-size=128'])
    t.match(commandLine({ ...shape, acceleration: 'kvm' }).join(' '), /-accel kvm -cpu host/)
  })
})

t.test('a machine’s answer on its serial line', async t => {
  const answer = '{"question":"4f1c","haproxy":[{"pid":80,"parent":1,"state":"S"}],"ports":[443,22],"tables":[]}'
  const evidence = { haproxy: [{ pid: 80, parent: 1, state: 'S' }], ports: [22, 443], tables: [] }
  const answerIn = (lines: string, question = '4f1c') => createAnswerReader(question)(lines)
  t.same(answerIn(`{"question":"0000","haproxy":[]}\r\nnoise\n${answer}\r\n`), evidence)
  t.equal(answerIn(answer), undefined, 'the line is not complete')
  t.equal(answerIn(`${answer}\n`, '4f1d'), undefined, 'the answer to another question')
  t.equal(answerIn(`${answer.replace('443', '"443"')}\n`), null, 'not what a machine says')
  t.equal(answerIn(`${answer.replace('443,22', '')}\n`), null, 'sshd listens in every machine')
  for (const [part, more] of Object.entries({ '443': '443,', '{"pid"': '{"pid":1,"parent":1,"state":"S"},' })) {
    const many = more.repeat(1100).replace(/443,$/, '443')
    t.equal(answerIn(`${answer.replace(part, many + (part === '443' ? '' : part))}\n`), null, 'too many entries')
  }
  const read = createAnswerReader('4f1c')
  t.same(
    [...`x\n${answer}\r`].map(read).filter(found => found !== undefined),
    [],
    'one character after another',
  )
  t.same(read('\n'), evidence)
  t.equal(answerIn('x'.repeat(65_537)), null, 'it says too much')
  fc.assert(fc.property(fc.string(), text => answerIn(`${text}\n`) === undefined))

  const { directory, short } = openDirectory(t)
  const path = join(directory, 'evidence')
  let silent = false
  const server = createServer(socket => {
    socket.on('data', question => {
      const line = answer.replace('4f1c', String(question).trim())
      if (!silent) socket.write(`${line.slice(0, 30)}`, () => socket.write(`${line.slice(30)}\n`))
    })
  })
  await new Promise<void>(resolve => server.listen(short('evidence'), resolve))
  t.teardown(() => server.close())
  t.same(await askMachine(path, 10_000), evidence)
  silent = true
  t.equal(await askMachine(path, 20), null, 'silence proves nothing')
  t.equal(await askMachine(`${path}-missing`), null)
})

t.test('KVM counts as working', async t => {
  const exited = { kind: 'exited', code: 0, signal: null, stdout: '', stderr: '' } as const
  t.test('if the tiny machine has come to its end', async t => {
    t.same(judgeProof({ ...exited, code: PROOF_STATUS }), { kind: 'kvm' })
  })
  for (const [title, result, why] of [
    ['it hangs', { ...exited, code: null, signal: 'SIGKILL' }, /hangs: a tiny machine did not finish within 3 s/],
    ['it cannot even be killed', { kind: 'stuck' }, /hangs: not even/],
    ['QEMU is not there', { kind: 'failed', reason: 'ENOENT' }, /could not be started: ENOENT/],
    [
      'the device is closed',
      { ...exited, code: 1, stderr: 'qemu-system-x86_64: failed to initialize kvm: Permission denied\n' },
      /^\/dev\/kvm does not work: failed to initialize kvm: Permission denied$/,
    ],
    ['it ends otherwise', exited, /ended with status 0/],
  ] as const) {
    t.test(`not if ${title}`, async t => t.match(judgeProof(result), { kind: 'tcg', why }))
  }
  t.test('and its firmware starts where a processor does', async t => {
    const firmware = proofFirmware()
    t.equal(firmware.length, 65_536)
    t.same(firmware.subarray(-16, -13), Buffer.of(0xe9, 0x0d, 0x00))
  })
})

t.test('slots', async t => {
  const tap = (digit: number) => `p${String(digit).repeat(11)}`
  const names = ['type', 'disk', 'slot0', 'seed', `nic-0-${tap(1)}`, `nic-2-${tap(2)}`, 'nic-3-other']
  const present = peripheralsIn(names)
  t.same(
    present.map(({ slot, tap }) => [slot, tap]),
    [
      [0, tap(1)],
      [2, tap(2)],
    ],
  )
  t.equal(freeSlot(present), 1)
  const all = peripheralsIn(Array.from({ length: 9 }, (_, slot) => `nic-${slot}-${tap(slot)}`))
  t.equal(freeSlot(all), null, 'eight besides the management interface')
  for (const invented of [`nic-9-${tap(1)}`, `nic-8-${tap(9)}`])
    t.throws(() => peripheralsIn([...all.map(({ id }) => id), invented]), { name: 'QmpProtocolError' }, invented)
})

t.test('a machine that holds on to its seed keeps an empty disk', async t => {
  const directory = t.testdir({ seed: 's'.repeat(4096) })
  const seed = openSync(join(directory, 'seed'), 'r')
  const machine = [
    '-machine',
    'q35',
    '-m',
    '64',
    '-nodefaults',
    '-display',
    'none',
    '-qmp',
    'unix:monitor,server=on,wait=off',
  ]
  const devices = [
    ...['-device', 'pcie-root-port,id=slot9,chassis=1'],
    ...[
      '-add-fd',
      'fd=3,set=3',
      '-blockdev',
      'driver=file,locking=off,node-name=seed,filename=/dev/fdset/3,read-only=on',
    ],
    ...['-device', 'virtio-blk-pci,id=seed,drive=seed,bus=slot9'],
  ]
  const qemu = spawn(QEMU, [...machine, ...devices], { cwd: directory, stdio: ['ignore', 'ignore', 'inherit', seed] })
  closeSync(seed)
  const ended = once(qemu, 'exit')
  t.teardown(() => qemu.kill('SIGKILL') && ended)
  const path = join(directory, 'monitor')
  await eventually('QEMU listens', () => existsSync(path) || null)
  await withQmp(path, async qmp => {
    const namesOf = async (command: string, name: string) =>
      (await qmp.execute(command, { answer: z.array(z.looseObject({})) })).map(one => one[name])
    for (const end of ['emptied', 'empty']) {
      t.equal(await removeSeed(qmp, 100), end, 'it has no system that could let go of it')
      t.same(await namesOf('query-named-block-nodes', 'node-name'), ['empty'])
      t.same(await namesOf('query-fdsets', 'fdset-id'), [], 'QEMU has closed it')
    }
  })
})

t.test('a machine that lets go of its seed after the last look', async t => {
  const present = new Set(['seed'])
  const refusals: string[] = []
  const answers: Record<string, () => unknown> = {
    'qom-list': () => [...present].map(name => ({ name, type: 'child<virtio-blk-pci>' })),
    'query-named-block-nodes': () => [],
    'blockdev-add': () => present.clear(),
  }
  const qmp: Qmp = {
    version: '7.2.22',
    execute: async (command, { answer }) => {
      if (/^qom-(get|set)$/.test(command) && !present.has('seed')) {
        refusals.push(command)
        throw new QmpRefused(command, 'DeviceNotFound', 'not found')
      }
      return answer.parse(answers[command]?.())
    },
    event: async () => null,
  }
  t.equal(await removeSeed(qmp, 0), 'released')
  t.same(refusals, ['qom-set'])
  t.equal(await removeSeed(qmp, 0), 'released', 'it is not there any more')
  t.same(refusals, ['qom-set', 'qom-get'])
})

t.test('memory', async t => {
  t.equal(memoryForMachines(0, 16_000), 12_000)
  t.equal(memoryForMachines(2_000, 16_000), 2_000)
  t.doesNotThrow(() => requireMemory([512, 512], 1024))
  t.throws(() => requireMemory([512, 512, 1], 1024), {
    message: /1024 MiB.*3 would need 1025/,
  })
  const settings = { machine_memory: 256, machines_memory: 0 }
  t.match(checkMemory(settings, { host: 16_000, overhead: 256 }), { state: 'ok', text: /room for 23 of 256 MiB/ })
  t.match(checkMemory(settings, { host: 512, overhead: 256 }), { state: 'fault' })
  t.match(checkMemory({ ...settings, machines_memory: 1000 }, { host: 512, overhead: 256 }), {
    state: 'fault',
    text: /has 512/,
  })
})

t.test('room on the disk', async t => {
  t.doesNotThrow(() => requireRoom([1024, 1024], 2048))
  t.throws(() => requireRoom([3 * 1024 ** 2, 1024 ** 2], 1024 ** 2), {
    message: /has 1 MiB left, and the disks of 2 virtual machines may grow by 4\./,
  })
  const disk = join(t.testdir({ text: 'no disk' }), 'disk')
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', disk, '64M'])
  t.equal(mayGrowBy(`${disk}-missing`, 1024), 0)
  const own = `${disk}-own`
  const limit = await createDisk(own, disk)
  t.equal(limit, 66 * 1024 ** 2, 'a machine may write all of it')
  t.notOk(existsSync(`${own}.new`))
  const growth = mayGrowBy(own, limit)
  t.ok(growth > 65 * 1024 ** 2 && growth < limit, String(growth))
  // As a loss of power leaves it, or a QEMU that is not to be trusted.
  writeFileSync(own, `QFI\xfb${'\xff'.repeat(28)}`, 'latin1')
  const claimed = mayGrowBy(own, limit)
  t.ok(claimed > 65 * 1024 ** 2 && claimed < limit, `what it says of its size does not count: ${claimed}`)
  truncateSync(own)
  t.equal(mayGrowBy(own, limit), limit)
})

t.test('an image', async t => {
  const state = t.testdir({ images: { edge: {} } })
  const edge = join(state, 'images/edge')
  const manifest = join(edge, 'manifest.json')
  t.throws(() => findMachineImage(state, 'amphora'), {
    message: /no amphora image with the tag amphora.*krater image import/,
  })
  writeFileSync(manifest, imageManifest({ kernelOptions: 'quiet panic=1' }))
  t.throws(() => findMachineImage(state, 'edge'), { message: /not complete: it lacks disk\.qcow2, kernel, initrd/ })
  for (const name of ['disk.qcow2', 'kernel', 'initrd']) writeFileSync(join(edge, name), '')
  t.match(findMachineImage(state, 'edge'), {
    tag: 'edge',
    id: 'ab'.repeat(32),
    kernelOptions: 'quiet panic=1',
    disk: join(realpathSync(edge), 'disk.qcow2'),
  })
  const files = { 'disk.qcow2': { bytes: 1, sha256: 'ef'.repeat(32) } }
  writeFileSync(manifest, imageManifest({ files }))
  t.throws(() => findMachineImage(state, 'edge'), { message: /lacks a part of disk\.qcow2\. Import it again/ })
  writeFileSync(manifest, imageManifest({ architecture: 's390x' }))
  t.throws(() => findMachineImage(state, 'edge'), { message: /is one for s390x/ })
  writeFileSync(manifest, imageManifest({ id: '../..' }))
  t.throws(() => findMachineImage(state, 'edge'), { message: /lacks a manifest that can be read/ })
})

t.test('messages of a monitor', async t => {
  t.test('are told apart', async t => {
    t.same(parseMessage(GREETING), { kind: 'greeting', version: '7.2.22' })
    t.same(parseMessage('{"return": {}, "id": 3}'), { kind: 'return', id: 3, value: {} })
    t.same(parseMessage('{"id": 4, "error": {"class": "GenericError", "desc": "no"}}'), {
      kind: 'error',
      id: 4,
      class: 'GenericError',
      description: 'no',
    })
    t.same(parseMessage('{"timestamp": {"seconds": 1}, "event": "RESUME"}'), {
      kind: 'event',
      name: 'RESUME',
      data: {},
    })
  })
  t.test('arrive in any pieces', async t => {
    const event = fc.record({ event: fc.string({ minLength: 1 }), data: fc.dictionary(fc.string(), fc.jsonValue()) })
    fc.assert(
      fc.property(fc.array(event, { maxLength: 8 }), fc.array(fc.nat(200), { maxLength: 30 }), (events, cuts) => {
        const text = events.map(one => `${JSON.stringify(one)}\r\n`).join('')
        const places = [0, ...cuts.map(cut => cut % (text.length + 1)).sort((a, b) => a - b), text.length]
        const read = createMessageReader()
        const found = places.slice(1).flatMap((end, index) => read(text.slice(places[index], end)))
        t.same(
          found.map(one => one.kind === 'event' && one.name),
          events.map(one => one.event),
        )
      }),
    )
  })
  t.test('that are none are refused, never half understood', async t => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ minLength: 1 }), fc.json()), line => {
        try {
          parseMessage(line)
        } catch (error) {
          t.ok(error instanceof QmpProtocolError)
        }
      }),
    )
    for (const line of ['{}', '[]', '1', '{"return": {}}', '{"id": 1}', '{"error": "no"}', '{"QMP": {}}'])
      t.throws(() => parseMessage(line), { name: 'QmpProtocolError' }, line)
    t.throws(() => createMessageReader()('x'.repeat(1024 * 1024 + 1)), { message: /says too much/ })
    const read = createMessageReader()
    const line = `{"event": "${'e'.repeat(1000)}"}\n`
    t.throws(() => Array.from({ length: 1100 }, () => read(line)), { message: /says too much/ }, 'also in many lines')
  })
})

t.test('a monitor', async t => {
  const { directory, short } = openDirectory(t)
  const serve = async (t: Test, answer: (line: string, socket: Socket) => void) => {
    const name = randomUUID()
    const server = createServer(socket => {
      socket.on('error', () => undefined)
      socket.write(`${GREETING}\r\n`)
      socket.on('data', piece => {
        for (const line of String(piece).trim().split('\n')) answer(line, socket)
      })
    })
    await new Promise<void>(resolve => server.listen(short(name), resolve))
    t.teardown(() => server.close())
    return join(directory, name)
  }
  const idOf = (line: string) => (JSON.parse(line) as { id: number }).id
  const reply = (line: string, socket: Socket, value: unknown = {}) =>
    socket.write(`${JSON.stringify({ return: value, id: idOf(line) })}\r\n`)
  const command = (line: string) => (JSON.parse(line) as { execute: string }).execute
  const anything = { answer: z.unknown() }

  t.test('answers commands, and says what happens', async t => {
    const path = await serve(t, (line, socket) => {
      if (command(line) === 'device_del') socket.write('{"event": "DEVICE_DELETED", "data": {"device": "nic"}}\r\n')
      reply(line, socket, command(line) === 'query-status' ? { status: 'running' } : {})
    })
    await withQmp(path, async qmp => {
      t.equal(qmp.version, '7.2.22')
      t.same(await qmp.execute('query-status', { answer: z.object({ status: z.string() }) }), { status: 'running' })
      const gone = qmp.event(({ data }) => data.device === 'nic', 1_000)
      await qmp.execute('device_del', { arguments: { id: 'nic' }, ...anything })
      t.match(await gone, { name: 'DEVICE_DELETED' })
      t.equal(await qmp.event(() => true, 10), null, 'nothing more')
      // Nobody awaits it when the connection ends.
      void qmp.event(() => false, 60_000)
    })
  })
  t.test('refuses with QMP’s class', async t => {
    const path = await serve(t, (line, socket) => {
      if (command(line) === 'qmp_capabilities') return reply(line, socket)
      const error = { class: 'DeviceNotFound', desc: 'Device nic not found' }
      return socket.write(`${JSON.stringify({ error, id: idOf(line) })}\r\n`)
    })
    await t.rejects(
      withQmp(path, qmp => qmp.execute('device_del', anything)),
      {
        name: 'QmpRefused',
        errorClass: 'DeviceNotFound',
      },
    )
  })
  t.test('that answers otherwise than agreed, ends, or was never there fails at once', async t => {
    const odd = await serve(t, (line, socket) => reply(line, socket, { status: 1 }))
    const status = { answer: z.object({ status: z.string() }) }
    await t.rejects(
      withQmp(odd, qmp => qmp.execute('query-status', status)),
      { name: 'QmpProtocolError' },
    )
    const ends = await serve(t, (line, socket) => (command(line) === 'quit' ? socket.destroy() : reply(line, socket)))
    await t.rejects(
      withQmp(ends, qmp => qmp.execute('quit', anything)),
      { name: 'QmpUnreachable' },
    )
    await t.rejects(
      withQmp(join(directory, 'none'), async () => undefined),
      { name: 'QmpUnreachable' },
    )
    await t.rejects(
      withQmp(join(directory, 'none/there'), async () => undefined),
      { name: 'QmpUnreachable' },
    )
  })
  t.test('that is silent is not waited for', async t => {
    const server = createServer(socket => socket.on('error', () => undefined))
    await new Promise<void>(resolve => server.listen(short('silent'), resolve))
    t.teardown(() => server.close())
    await t.rejects(
      withQmp(join(directory, 'silent'), async () => undefined, { greetingLimitMs: 20 }),
      { name: 'QmpUnreachable' },
    )
  })
})
