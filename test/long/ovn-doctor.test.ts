import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { until } from '../support/worlds/krater.js'
import { startOvnKrater } from '../support/worlds/ovn-krater.js'

t.test('the doctor looks at OVN', async t => {
  t.setTimeout(1_100_000)
  const { krater, nb } = await startOvnKrater(t)
  const workers = [krater.pidOf('network-worker'), krater.pidOf('worker')]
  const signal = (name: 'SIGSTOP' | 'SIGCONT') => {
    for (const pid of workers) process.kill(pid, name)
  }
  /** What it says of OVN, with the remedies. */
  const said = async () => {
    const { stdout } = await krater.command('doctor')
    return stdout
      .split(/\n(?! {4}what to do)/)
      .filter(text => text.startsWith('OVN '))
      .map(text => text.replace(/\s+/g, ' '))
  }
  const kill = async (daemon: string) => {
    const pid = readFileSync(join(krater.directory, 'ovn', `${daemon}.pid`), 'utf8').trim()
    process.kill(Number(pid), 'SIGKILL')
    await until(`${daemon} has ended`, async () => !isAlive(pid))
  }
  const isAlive = (pid: string): boolean => {
    try {
      return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
    } catch {
      return false
    }
  }
  const right = /^OVN ok has what the tables say: \d+ objects$/
  const started = `what to do: krater up --detach, which starts OVN; its logs are in ${join(krater.directory, 'ovn')}`
  const without = (...parts: string[]) => `OVN fault runs without ${parts.join(', ')} ${started}`
  await until('all is well', async () => (await said()).every(text => right.test(text)))
  t.equal((await said()).length, 1)

  // Krater would repair all of it within a second or two.
  signal('SIGSTOP')
  t.teardown(() => signal('SIGCONT'))

  await t.test('and finds rows that differ', async t => {
    const ports = await nb('--bare', '--columns=name', 'list', 'logical_switch_port')
    await nb('lsp-del', ports.split('\n').find(Boolean)!)
    const [found, ...others] = await said()
    t.match(found, /^OVN fault 1 object of \d+ differ from the tables what to do: krater ovn check .* krater ovn sync /)
    t.same(others, [])
    t.match(await krater.command('ovn', 'sync'), { status: 0 })
    t.match(await said(), [right])
  })

  await t.test('and a northd that is dead, and what waits for it', async t => {
    await kill('ovn-northd')
    t.match(await said(), [without('ovn-northd'), right])
    await nb('set', 'nb_global', '.', 'nb_cfg=1000000')
    t.match(await said(), [
      without('ovn-northd'),
      right,
      /^OVN note ovn-northd has worked out the change \d{1,3}; the last one is 1000000 what to do: /,
    ])
  })

  await t.test('and every other part that is dead', async t => {
    await kill('ovn-controller')
    t.match((await said())[0], without('ovn-controller', 'ovn-northd'))
    await kill('ovs-vswitchd')
    t.match((await said())[0], without('ovn-controller', 'ovn-northd', 'ovs-vswitchd'))
    await kill('switch')
    const most = ['ovn-controller', 'ovn-northd', 'ovs-vswitchd']
    t.match((await said())[0], without(...most, 'the database switch'))
    await kill('northbound')
    t.same(
      await said(),
      [without(...most, 'the database northbound', 'the database switch')],
      'nothing can be compared',
    )
    await kill('southbound')
    t.same(await said(), [
      without(...most, 'the database southbound', 'the database northbound', 'the database switch'),
    ])
  })

  await t.test('until Krater has started them', async t => {
    signal('SIGCONT')
    await until('all is well', async () => {
      const found = await said()
      return found.length === 1 && right.test(found[0]!)
    })
    t.match(await krater.command('doctor'), { status: 0 })
  })
})
