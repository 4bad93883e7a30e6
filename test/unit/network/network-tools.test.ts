import { execFileSync } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { ip, runTool } from '../../../controller/network/local/ip-command.js'
import { runInThread } from '../../../controller/network/local/tool-thread.js'

t.test('a program gets its input and returns its output, even when many run at once', async t => {
  const texts = Array.from({ length: 20 }, (_, index) => `${index} ${'ä'.repeat(40_000)}`)
  t.same(await Promise.all(texts.map(text => runTool(['cat'], text))), texts)
})

t.test('a failing program’s error output is in the error', async t => {
  await t.rejects(ip(['link', 'show', 'dev', 'no-such-interface']), { message: /no-such-interface.*does not exist/s })
})

t.test('a missing program is named in the error', async t => {
  await t.rejects(runTool(['no-such-program'], ''), { message: /^no-such-program could not be started: .*ENOENT/ })
})

t.test('a program that cannot be started does not affect others', async t => {
  const other = runTool(['sleep', '0.2'], '')
  await t.rejects(runTool(['true', 'x'.repeat(3_000_000)], ''), { message: /^true could not be started: .*E2BIG/ })
  t.equal(await other, '')
})

t.test('a program that exceeds its time limit is killed', async t => {
  const result = await runInThread({ argv: ['sleep', '600'], input: '', timeoutMs: 50 })
  t.match(result, { kind: 'exited', code: null, signal: 'SIGKILL' })
})

t.test('a program that outlives its kill holds nothing up', async t => {
  const pipe = join(t.testdir({}), 'pipe')
  execFileSync('mkfifo', [pipe])
  // Another process reads the pipe, and holds the output open until something is in it.
  const argv = ['sh', '-c', 'cat "$0" & exec sleep 600', pipe] as const
  t.same(await runInThread({ argv, input: '', timeoutMs: 500 }), { kind: 'stuck' })
  // This does not wait for a reader.
  await writeFile(pipe, 'end', { flag: 'r+' })
})

t.test('a program starts while the main thread is busy', async t => {
  const command = { argv: ['date', '+%s%3N'], input: '', timeoutMs: 10_000 } as const
  await runInThread(command)
  const started = Date.now()
  const running = runInThread(command)
  while (Date.now() - started < 500);
  const result = await running
  t.ok(result.kind === 'exited' && Number(result.stdout) - started < 500)
})
