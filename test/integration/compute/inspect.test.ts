import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { DATAGRAM_TABLE } from '../../../amphora-agent/protocol/datagrams.js'
import { inspectMachine } from '../../../controller/compute/namespace/inspect-machine.js'
import { createAnswerReader } from '../../../controller/compute/qemu/ask-machine.js'
import { createLab, eventually } from '../../support/worlds/machines.js'
import { bundle } from '../../support/worlds/programs.js'

/** The kernel names the process after its file. */
const haproxy = join(t.testdir({}), 'haproxy')
symlinkSync(process.execPath, haproxy)

const LISTEN = `for (const place of process.argv.slice(1)) {
  const { hostname, port } = new URL('tcp://' + place)
  require('node:net').createServer().listen(Number(port), hostname.replace(/[[\\]]/g, ''), () => console.log('listening'))
}
setInterval(() => {}, 1000)`

/** A machine whose HAProxy listens on these addresses. @returns the process that holds it, and its network namespace */
async function createMachine(t: Test, places: readonly string[]) {
  const init = ['bash', '-c', 'ip link set lo up; "$@" & wait $!', 'init', haproxy, '-e', LISTEN, ...places]
  const holder = spawn('unshare', ['--net', '--pid', '--fork', '--kill-child', ...init], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(holder, 'exit')
  t.teardown(() => {
    holder.kill('SIGKILL')
    return ended
  })
  let said = ''
  for await (const piece of holder.stdout) {
    said += piece
    if (said.split('\n').length > places.length) break
  }
  const pid = holder.pid ?? 0
  const namespace = `inspected-${pid}`
  execFileSync('ip', ['netns', 'attach', namespace, String(pid)])
  t.teardown(() => execFileSync('ip', ['netns', 'delete', namespace]))
  return { pid, namespace, inspect: () => inspectMachine(pid, namespace) }
}

/** Runs a task while this process cannot open files. */
async function withoutFreeFiles<T>(act: () => Promise<T>): Promise<T> {
  const limit = (files: string) => execFileSync('prlimit', ['--pid', String(process.pid), `--nofile=${files}:`])
  const usual = execFileSync('prlimit', ['--pid', String(process.pid), '--nofile', '--output=SOFT', '--noheadings'])
  const taken: number[] = []
  limit('512')
  try {
    while (taken.length < 512) taken.push(openSync('/dev/null', 'r'))
  } catch {
    // No descriptor is left.
  }
  try {
    return await act()
  } finally {
    for (const file of taken) closeSync(file)
    limit(usual.toString().trim())
  }
}

t.test('the host inspects a machine from outside', async t => {
  await t.test('a tenant’s listener on port 22 counts, next to sshd’s on the same port', async t => {
    const { inspect } = await createMachine(t, ['127.0.0.1:22', '127.0.0.2:22'])
    t.match(await inspect(), { serves: true, forwards: false, finding: 'HAProxy runs and listens on 22' })
  })
  await t.test('sshd and the agent alone do not count as listeners', async t => {
    const { inspect } = await createMachine(t, ['127.0.0.1:22', '127.0.0.1:5515', '127.0.0.1:5516'])
    t.match(await inspect(), { serves: false, finding: 'HAProxy listens on no port' })
  })
  await t.test('what the kernel forwards needs no HAProxy', async t => {
    const { inspect, namespace } = await createMachine(t, ['127.0.0.1:22'])
    execFileSync('ip', ['netns', 'exec', namespace, 'nft', 'add', 'table', 'inet', DATAGRAM_TABLE])
    const finding = 'HAProxy listens on no port; the kernel forwards UDP and SCTP'
    t.same(await inspect(), { serves: false, forwards: true, finding })
  })
  await t.test('a host out of file descriptors throws instead of reporting', async t => {
    const { inspect } = await createMachine(t, ['127.0.0.1:80'])
    t.match(await inspect(), { serves: true })
    await withoutFreeFiles(() => t.rejects(inspect(), { code: 'EMFILE' }))
  })
  await t.test('a stopped machine yields null', async t => {
    t.equal(await inspectMachine(2 ** 22 + 1, 'none'), null)
  })
})

t.test('a host out of file descriptors never mistakes a machine for dead', async t => {
  const programs = t.testdir({})
  await bundle({ agent: join(import.meta.dirname, '../../../amphora-agent/main.ts') }, programs)
  const { driver, amphora, destroy } = await createLab({ agentBundle: join(programs, 'agent.mjs') })
  t.teardown(destroy)
  const { spec } = amphora()
  await driver.create(spec)
  await eventually('the machine can be inspected', async () => (await driver.inspect(spec.amphoraId)) !== null || null)
  await withoutFreeFiles(async () => {
    t.equal(await driver.inspect(spec.amphoraId), null)
    await t.rejects(driver.find(spec.amphoraId), { code: 'EMFILE' })
    await t.rejects(driver.list(), { code: 'EMFILE' })
  })
  t.match(await driver.find(spec.amphoraId), { state: 'running' })
})

/** Asks images/amphora/evidence.sh on a terminal of its own, in a machine. @param words that run it with fewer rights */
async function askEvidence(
  t: Test,
  { pid }: { pid: number },
  words: readonly string[],
  isDone: (text: string) => boolean,
) {
  const script = join(import.meta.dirname, '../../../images/amphora/evidence.sh')
  const inMachine = ['--target', String(pid), '--net', ...words]
  const asked = spawn('nsenter', [...inMachine, 'script', '-qec', `echo asked; bash ${script} /dev/tty`, '/dev/null'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const ended = once(asked, 'exit')
  t.teardown(() => {
    asked.kill('SIGKILL')
    return ended
  })
  let text = ''
  for await (const piece of asked.stdout) {
    // The terminal is there now; it keeps both questions.
    if (text === '') asked.stdin.write('0a\n0b\n')
    text += piece
    if (isDone(text)) break
  }
  return text
}

t.test('what a virtual machine says about itself', async t => {
  const machine = await createMachine(t, ['127.0.0.1:8080', '[::1]:8081'])
  execFileSync('ip', ['netns', 'exec', machine.namespace, 'nft', 'add', 'table', 'inet', DATAGRAM_TABLE])
  const complete = await askEvidence(t, machine, [], text => /"question":"0b".*\n/.test(text))
  const evidence = createAnswerReader('0a')(complete)
  t.match(evidence, { ports: [8080, 8081], tables: [DATAGRAM_TABLE] })
  t.ok(evidence?.haproxy.some(({ state }) => state === 'S'))

  const mayNotReadTables = ['setpriv', '--bounding-set=-net_admin']
  const failed = await askEvidence(t, machine, mayNotReadTables, text => text.split('netlink: Error').length > 2)
  t.notMatch(failed, '"question"', 'it says nothing if a part fails')
})
