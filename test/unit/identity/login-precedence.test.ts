import t from 'tap'
import { createPrecedence } from '../../../controller/identity/login/precedence.js'

t.test('on half of the processors, logins run at high priority, one per lane', async t => {
  const precedence = createPrecedence(4)
  const [one, same, other, third] = ['a', 'a', 'b', 'c'].map(precedence.arrive)
  t.same(
    [one, same, other, third].map(stay => stay?.goesFirst()),
    [true, false, true, false],
  )
  for (const stay of [one, same, other, third]) stay?.leave()
  t.equal(precedence.arrive('c').goesFirst(), true, 'the places are free again')
})

t.test('on a single processor, no login runs at high priority', async t => {
  t.equal(createPrecedence(1).arrive('a').goesFirst(), false)
})

t.test('a source that logs in constantly yields to others', async t => {
  const precedence = createPrecedence(2)
  const next = (lane: string) => {
    const stay = precedence.arrive(lane)
    const isFirst = stay.goesFirst()
    stay.leave()
    return isFirst
  }
  t.same([next('busy'), next('busy')], [true, true], 'every login is first while the source is alone')
  const other = precedence.arrive('other')
  t.equal(next('busy'), false, 'it is not first twice in a row while another waits')
  t.equal(other.goesFirst(), true)
  t.equal(next('busy'), false, 'the other source is first')
  other.leave()
  t.equal(next('busy'), true)
})
