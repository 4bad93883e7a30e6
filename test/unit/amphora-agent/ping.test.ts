import t from 'tap'
import { createJudge } from '../../../amphora-agent/ping/judge.js'
import { sharePings } from '../../../amphora-agent/ping/shared-ping.js'
import { parsePingQuestion, pingQuestion } from '../../../amphora-agent/protocol/ping.js'

const question = { subject: 'pool:listener:member', address: '2001:db8::1', timeoutSeconds: 3, rise: 2, fall: 3 }

t.test('a ping question survives encoding; a malformed one is refused', async t => {
  t.same(parsePingQuestion(pingQuestion(question)), question)
  const bad = ['', 'ping!', 'ping,a,::1,0,1,1!', 'ping,a,::1,1,1,0!', 'ping,a,-f,1,1,1!', 'ping,a b,::1,1,1,1!']
  for (const text of bad) t.equal(parsePingQuestion(text), null, text)
})

t.test('the first answer decides the state, then `rise` and `fall` answers in a row', async t => {
  const verdictsOf = (answers: boolean[]) => {
    const judge = createJudge()
    return answers.map(answered => judge(question, answered)).join(' ')
  }
  t.equal(verdictsOf([true, false, false, true, false, false, false, true]), 'up up up up up up down down')
  t.equal(verdictsOf([false, true, true, true]), 'down down up up')
})

t.test('each member is judged separately', async t => {
  const judge = createJudge()
  const other = { ...question, subject: 'pool:listener:other', fall: 1 }
  t.equal(judge(question, true), 'up')
  t.equal(judge(other, false), 'down')
  t.equal(judge(question, false), 'up')
})

t.test('the member not asked about for the longest time is forgotten first', async t => {
  const judge = createJudge()
  judge({ ...question, fall: 1 }, false)
  judge({ ...question, subject: 'kept' }, false)
  for (let number = 0; number < 20_000; number++) {
    judge({ ...question, subject: `other-${number}` }, true)
    if (number % 1000 === 0) judge({ ...question, subject: 'kept' }, false)
  }
  t.equal(judge(question, true), 'up', 'a forgotten member is judged as new')
  t.equal(judge({ ...question, subject: 'kept' }, true), 'down', 'one answer is not enough for a remembered member')
})

t.test('concurrent questions about one address share a ping; at most 256 run at once', async t => {
  const sent: { address: string; end: (answered: boolean) => void }[] = []
  const ask = sharePings(address => new Promise(end => sent.push({ address, end })))
  const first = [ask('192.0.2.1', 3), ask('192.0.2.1', 3)]
  t.equal(sent.length, 1)
  const others = Array.from({ length: 255 }, (_, number) => ask(`10.0.0.${number}`, 3))
  await t.rejects(ask('192.0.2.2', 3), { message: /pings in progress/ })
  t.equal(sent.length, 256)
  sent[0]?.end(true)
  t.same(await Promise.all(first), [true, true])
  const again = ask('192.0.2.1', 3)
  t.equal(sent.length, 257, 'an answer frees a slot and serves only earlier questions')
  for (const { end } of sent) end(false)
  t.same(new Set(await Promise.all([...others, again])), new Set([false]))
})
