import { execFile } from 'node:child_process'
import { chmodSync, existsSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import type { Desired } from '../../../amphora-agent/protocol/desired.js'
import { HAPROXY_CHROOT, HAPROXY_USER } from '../../../amphora-agent/protocol/paths.js'
import { SshAgentConnections } from '../../../controller/provider/amphora/agent/connection.js'
import { desire } from '../../support/worlds/amphora-desired.js'
import { datagramMember, datagramPool } from '../../support/worlds/datagrams-desired.js'
import { ip } from '../../support/worlds/ip.js'
import { SHARES } from '../../support/worlds/machine-shares.js'
import { asOperator, createLab, eventually, execute, login, processesIn, quiet } from '../../support/worlds/machines.js'
import { bundle } from '../../support/worlds/programs.js'

/**
 * An attacker controls an amphora's HAProxy, and then its agent. The kernel refuses every attempt, and the
 * amphora keeps running.
 */
const programs = t.testdir({})
await bundle({ agent: join(import.meta.dirname, '../../../amphora-agent/main.ts') }, programs)
const limits = { ...SHARES.limits, processors: 1 }
const lab = await createLab({ agentBundle: join(programs, 'agent.mjs'), limits })
const agents = new SshAgentConnections({ controllerKey: lab.controllerKey, log: quiet })
t.teardown(async () => {
  await agents.stop()
  await lab.destroy()
})
const { spec, target } = lab.amphora()
const { name: namespace } = await lab.driver.create(spec)
const operator = await login(target, 'root', lab.operatorKey)
t.teardown(() => operator.destroy())
const inside = (command: string) => execute(operator, command)

let generation = 0
const apply = (changes: Partial<Desired> = {}) =>
  agents.request(target, {
    verb: 'apply',
    desired: desire({
      generation: ++generation,
      changes,
      frontend: [`http-request return status 200 content-type text/plain string served-${generation}`],
    }),
  })
await apply()
const get = () => inside("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | socat -T5 - TCP:127.0.0.1:8080 | tail -n 1")

const run = promisify(execFile)

/** Starts a program as the agent starts HAProxy. */
const AS_HAPROXY = 'perl /run/krater/haproxy-seccomp.pl'
const ATTACKS = readFileSync(join(import.meta.dirname, '../../support/faults/taken-over.pl')).toString('base64')
const REFUSED = /^(EPERM|EACCES|ENOSYS|EAFNOSUPPORT|EPROTONOSUPPORT|ENOENT|EROFS)$/

/** The attempts by name, with their outcomes. */
async function attack(prefix: string, words = ''): Promise<Map<string, string>> {
  const output = await inside(`base64 -d <<<${ATTACKS} | ${prefix} /usr/bin/perl - ${words} 2>&1`)
  return new Map(
    output
      .trim()
      .split('\n')
      .map(line => line.split(' ') as [string, string]),
  )
}

/** A process of the machine, as the host sees it. */
function statusOf(pid: number): Record<string, string> {
  const lines = readFileSync(`/proc/${pid}/status`, 'utf8').trim().split('\n')
  return Object.fromEntries(lines.map(line => line.split(/:\s*/, 2) as [string, string]))
}

const isHaproxy = (pid: number): boolean => statusOf(pid).Name === 'haproxy'

t.test('HAProxy’s worker has no capabilities, no files and few system calls', async t => {
  const holder = lab.holderOf(spec.amphoraId)
  const haproxies = processesIn(namespace).filter(isHaproxy)
  const [master, worker, ...others] = haproxies
  t.ok(master && worker)
  t.same(others, [])
  t.match(statusOf(worker!), { CapEff: '0000000000000000', NoNewPrivs: '1', Seccomp: '2', Seccomp_filters: '2' })
  t.not(statusOf(worker!).Uid!.split('\t')[0], '0')
  t.match(readlinkSync(`/proc/${worker}/root`), new RegExp(`${HAPROXY_CHROOT}$`))
  t.equal(await inside(`ls -A ${HAPROXY_CHROOT}; stat -c '%a %U' ${HAPROXY_CHROOT}`), '555 root\n')
  for (const pid of processesIn(namespace).filter(pid => pid !== holder)) {
    t.match(statusOf(pid), { NoNewPrivs: '1', Seccomp: '2' }, `${statusOf(pid).Name} is confined`)
  }
})

t.test('a compromised HAProxy fails at every attack', async t => {
  const results = await attack(AS_HAPROXY, `${HAPROXY_USER} ${HAPROXY_CHROOT}`)
  t.ok(results.size > 55, `${results.size} attempts`)
  t.same(
    [...results].filter(([, ended]) => !REFUSED.test(ended)),
    [],
  )
})

t.test('root in an amphora fails at every attack', async t => {
  const results = await attack('')
  t.ok(results.size > 45, `${results.size} attempts`)
  t.same(
    [...results].filter(([, ended]) => !REFUSED.test(ended)),
    [],
  )
  t.match(await inside('unshare -Urmn id 2>&1; echo $?'), /Operation not permitted\n1\n$/)
})

t.test('the prober of members has no rights, few system calls and HAProxy’s routes', async t => {
  const types = ['TCP', 'PING', 'SCTP', 'UDP-CONNECT'] as const
  const hosts = [spec.healthManagers[0]!.host, '127.0.0.1']
  const places = hosts.map(address => ({ address, port: 8080 }))
  const members = places.map((place, number) => datagramMember(number, { ...place, monitor: place }))
  const limits = { delay: 1, timeout: 1, rise: 1, fall: 1, http: null, exchange: null }
  const pools = types.map((type, number) => datagramPool(number, members, { monitor: { type, ...limits } }))
  await apply({ datagrams: { vips: [], listeners: [], pools } })
  const causes = await eventually('all probes end', async () => {
    const text = await inside('cat /run/krater/member-states.json 2>/dev/null || echo []')
    const states = JSON.parse(text) as [string, { failed: { words: string } | null }][]
    return states.length < types.length * hosts.length ? null : states.map(([, { failed }]) => failed)
  })
  const refused = 'Permission denied'
  const words = causes.map(failed => failed?.words ?? 'up')
  t.same(words, [refused, 'up', refused, 'up', refused, '', refused, 'Connection refused'])

  const prober = processesIn(namespace).find(pid => statusOf(pid).Name === 'krater-prober')
  const none = '0000000000000000'
  t.match(statusOf(prober!), { CapPrm: none, CapEff: none, NoNewPrivs: '1', Seccomp: '2', Seccomp_filters: '2' })
  t.equal(statusOf(prober!).Uid, statusOf(processesIn(namespace).filter(isHaproxy)[1]!).Uid, 'HAProxy’s account')
  await apply()
})

t.test('HAProxy’s account reaches nobody on the management interface, not even by IPv6', async t => {
  const controller = createServer((_request, response) => response.end('welcome'))
  await new Promise<void>(resolve => controller.listen(0, '::', resolve))
  t.teardown(() => controller.close())
  const { port } = controller.address() as { port: number }
  const nic = `kt${lab.instance}`
  const [, local] = /inet6 (fe80::\S+)\//.exec(ip('-6', 'address', 'show', 'dev', nic)) ?? []
  t.ok(local, 'the host has an IPv6 address there')
  const call = (account = '') =>
    inside(`${account} socat -T10 - 'TCP6:[${local}%mgmt0]:${port},connect-timeout=10' </dev/null 2>&1; true`)
  const asHaproxy = `setpriv --reuid=${HAPROXY_USER} --regid=${HAPROXY_USER} --clear-groups`
  t.equal(await inside('ip -6 address show dev mgmt0'), '', 'the interface has no IPv6 address')
  t.match(await call(asHaproxy), /unreachable|Cannot assign|Permission denied/)
  const callWithAddress = async () => {
    // The agent and its helper would remove the address again at once.
    await inside('pkill -STOP -f /opt/krater/[a]gent.mjs; pkill -KILL -f /opt/krater/[m]anagement.sh; true')
    await inside('cd /proc/sys/net/ipv6/conf/mgmt0; echo 0 >accept_dad; echo 0 >disable_ipv6')
    await eventually('the interface gets an address', async () =>
      /fe80/.test(await inside('ip -6 address show dev mgmt0 -tentative')),
    )
    return [await call(), await call(asHaproxy)] as const
  }
  // Process 1 soon kills a stopped agent, and the next agent removes the address: on a busy machine, amid the calls.
  let [root, haproxy] = await callWithAddress()
  for (let attempt = 0; attempt < 3 && /timed out|unreachable|Cannot assign/.test(root); attempt++) {
    ;[root, haproxy] = await callWithAddress()
  }
  t.match(root, /Connection refused|^$/, 'with an address, root reaches the host')
  t.match(haproxy, /Permission denied/, 'HAProxy’s account still does not')
  // Process 1 may be about to kill the agent, so wait for the next one.
  await inside('echo 1 >/proc/sys/net/ipv6/conf/mgmt0/disable_ipv6; pkill -KILL -f /opt/krater/[a]gent.mjs; true')
  await eventually('another agent answers', async () =>
    agents
      .request(target, { verb: 'hello' })
      .then(() => true)
      .catch(() => false),
  )
})

t.test('memory, CPU and processes of an amphora are limited where the host has control groups', async t => {
  const roots = readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map(line => line.split(' '))
    .filter(([, , type]) => type?.startsWith('cgroup'))
    .map(([, path]) => `${path}/krater-${lab.instance}/project-${spec.projectId}/${spec.amphoraId}`)
  /** Null when this host has no such controller. */
  const fileOf = (...files: string[]) =>
    roots.flatMap(root => files.map(name => join(root, name))).find(path => existsSync(path))
  const settingOf = (...files: string[]) => {
    const file = fileOf(...files)
    return file === undefined ? null : readFileSync(file, 'utf8').trim()
  }
  const told = JSON.parse(await inside('cat /run/krater/boot.json')).limits
  const agentBefore = await inside('pgrep -f agent.mjs')

  const memory = settingOf('memory.max', 'memory.limit_in_bytes')
  t.equal(told.memoryBytes, memory === null ? undefined : limits.memoryBytes)
  if (memory !== null) {
    t.equal(Number(memory), limits.memoryBytes)
    const { memoryBytes } = limits
    t.match(
      await agents.request(target, { verb: 'hello' }),
      { limits: { memoryBytes } },
      'the agent reports it to the controller',
    )
    t.match(await inside(`perl -e '$x = "a" x ${2 * limits.memoryBytes}; print "has it"' 2>&1; echo $?`), /^137$/m)
  } else t.comment('no memory controller here')

  const processor = settingOf('cpu.max', 'cpu.cfs_quota_us')
  t.equal(told.processors, processor === null ? undefined : limits.processors)
  if (processor !== null) {
    t.equal(Number(processor.split(' ')[0]), limits.processors * 100_000)
    const throttled = () => Number(/^nr_throttled (\d+)$/m.exec(settingOf('cpu.stat') ?? '')?.[1])
    const before = throttled()
    // A quota so small that a busy loop exceeds it, however busy the host is.
    writeFileSync(fileOf('cpu.max', 'cpu.cfs_quota_us')!, '2000')
    await inside("timeout 0.4 bash -c 'while :; do :; done'")
    writeFileSync(fileOf('cpu.max', 'cpu.cfs_quota_us')!, '100000')
    t.ok(throttled() > before, 'a busy loop is throttled')
    t.match(await inside('cat /run/krater/haproxy-machine.cfg'), /nbthread 1$/m, 'HAProxy is configured for it')
  } else t.comment('no cpu controller here')

  const processes = settingOf('pids.max')
  t.equal(told.processes, processes === null ? undefined : limits.processes)
  if (processes !== null) {
    t.equal(Number(processes), limits.processes)
    const forks = `perl -e 'for (1 .. ${2 * limits.processes}) { $pid = fork; last unless defined $pid; if (!$pid) { sleep 60; exit } push @all, $pid }
      print scalar @all, " "; system "echo others run" if @ARGV; kill 9, @all; 1 while wait > 0'`
    t.ok(Number(await inside(forks)) < limits.processes, 'root cannot fork any more')
    const [count, words] = (
      await inside(`${AS_HAPROXY} setpriv --reuid=${HAPROXY_USER} --clear-groups ${forks} & sleep 0.1; wait; echo`)
    ).split(' ')
    t.ok(Number(count) <= limits.processes / 2, `HAProxy’s account has at most half of them: ${count}`)
    t.equal(words?.trim(), '')
  } else t.comment('no pids controller here')
  t.equal(await inside('pgrep -f agent.mjs'), agentBefore, 'the agent survives')
})

t.test('no two amphorae of a host share a user id', async t => {
  const second = lab.amphora()
  await lab.driver.create(second.spec)
  const other = await createLab({ agentBundle: join(programs, 'agent.mjs') })
  t.teardown(() => other.destroy())
  // In another installation, the same amphora id starts its search for accounts at the same place.
  const third = other.amphora(spec.amphoraId)
  await other.driver.create(third.spec)
  const all = [
    lab.firstProcessOf(spec.amphoraId),
    lab.firstProcessOf(second.spec.amphoraId),
    other.firstProcessOf(third.spec.amphoraId),
  ].flatMap(pid => {
    const [map, ...more] = readFileSync(`/proc/${pid}/uid_map`, 'utf8').trim().split('\n')
    t.same(more, [])
    t.equal(readFileSync(`/proc/${pid}/gid_map`, 'utf8').trim(), map)
    const [, first, count] = map!.trim().split(/\s+/).map(Number)
    return Array.from({ length: count! }, (_, number) => first! + number)
  })
  t.equal(all.length, 24)
  t.equal(new Set(all).size, all.length)
  t.notOk(all.includes(0), 'root in an amphora is not root on the host')
  await lab.driver.delete(second.spec.amphoraId)
})

t.test('an agent program that only root may read is refused with advice', async t => {
  const agent = join(programs, 'agent.mjs')
  chmodSync(agent, 0o600)
  t.teardown(() => chmodSync(agent, 0o644))
  await t.rejects(lab.driver.create(lab.amphora().spec), {
    message: `Amphorae may not use ${agent}: run chmod o+rX on it.`,
  })
})

t.test('an amphora that uses up its timers leaves the others theirs', async t => {
  // The limits of the process that creates an amphora do not apply to all amphorae.
  const limit = (soft: string) => run('prlimit', [`--pid=${process.pid}`, `--sigpending=${soft}:`])
  const [, soft] = /^Max pending signals +(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))!
  t.teardown(() => limit(soft!))
  await limit('100')
  const [greedy, modest] = [lab.amphora(), lab.amphora()]
  await lab.driver.create(greedy.spec)
  await lab.driver.create(modest.spec)
  const take = (most: number, end: string) =>
    `setpriv --reuid=${HAPROXY_USER} --regid=${HAPROXY_USER} --clear-groups perl -e '
      require "syscall.ph";
      my ($made, $id) = (0, "\\0" x 8);
      $made++ while $made < ${most} && syscall(&main::SYS_timer_create(), 1, 0, $id) == 0;
      print "$made\\n"; close STDOUT; close STDERR; ${end}'`
  t.equal(await asOperator(greedy.target, lab.operatorKey, `(${take(100_000, 'sleep')} 2>&1 &) | head -n 1`), '1024\n')
  t.equal(await asOperator(modest.target, lab.operatorKey, take(1000, '')), '1000\n')
  await lab.driver.delete(greedy.spec.amphoraId)
  await lab.driver.delete(modest.spec.amphoraId)
})

t.test('inotify instances are limited per amphora', async t => {
  const watch = `perl -e 'require "syscall.ph"; my $made = 0;
    $made++ while $made < 100 && syscall(&main::SYS_inotify_init1(), 0) >= 0; print $made'`
  t.equal(await inside(watch), '8')
})

t.test('after all attacks the amphora still serves and applies changes', async t => {
  t.equal((await get()).trim(), `served-${generation}`)
  t.match(await apply(), { transition: 'reload' })
  t.equal((await get()).trim(), `served-${generation}`)
  process.kill(processesIn(namespace).find(pid => statusOf(pid).Name === 'haproxy')!, 'SIGKILL')
  await apply()
  t.equal((await get()).trim(), `served-${generation}`)
})
