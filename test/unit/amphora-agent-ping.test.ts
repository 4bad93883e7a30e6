import t from 'tap'
import { createJudge } from '../../amphora-agent/ping/judge.js'
import { parsePingQuestion, pingQuestion } from '../../amphora-agent/protocol/ping.js'

const question = { subject: 'pool:listener:member', address: '2001:db8::1', timeoutSeconds: 3, rise: 2, fall: 3 }

t.test('a question is understood as it was put', async t => {
  t.same(parsePingQuestion(pingQuestion(question)), question)
  const bad = ['', 'ping!', 'ping,a,::1,0,1,1!', 'ping,a,::1,1,1,0!', 'ping,a,-f,1,1,1!', 'ping,a b,::1,1,1,1!']
  for (const text of bad) t.equal(parsePingQuestion(text), null, text)
})

t.test('the first answer decides, then as many in a row as are asked for', async t => {
  const verdictsOf = (answers: boolean[]) => {
    const judge = createJudge()
    return answers.map(answered => judge(question, answered)).join(' ')
  }
  t.equal(verdictsOf([true, false, false, true, false, false, false, true]), 'up up up up up up down down')
  t.equal(verdictsOf([false, true, true, true]), 'down down up up')
})

t.test('members are judged apart from each other', async t => {
  const judge = createJudge()
  const other = { ...question, subject: 'pool:listener:other', fall: 1 }
  t.equal(judge(question, true), 'up')
  t.equal(judge(other, false), 'down')
  t.equal(judge(question, false), 'up')
})

t.test('who was not asked about for longest is forgotten first', async t => {
  const judge = createJudge()
  judge({ ...question, fall: 1 }, false)
  judge({ ...question, subject: 'kept' }, false)
  for (let number = 0; number < 20_000; number++) {
    judge({ ...question, subject: `other-${number}` }, true)
    if (number % 1000 === 0) judge({ ...question, subject: 'kept' }, false)
  }
  t.equal(judge(question, true), 'up', 'as if never seen')
  t.equal(judge({ ...question, subject: 'kept' }, true), 'down', 'one answer is not enough')
})
