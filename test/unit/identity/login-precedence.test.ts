import t from 'tap'
import { createPrecedence } from '../../../controller/identity/login/precedence.js'

t.test('on half of the processors logins go first, one of a lane at a time', async t => {
  const precedence = createPrecedence(4)
  const [one, same, other, third] = ['a', 'a', 'b', 'c'].map(precedence.arrive)
  t.same(
    [one, same, other, third].map(stay => stay?.goesFirst()),
    [true, false, true, false],
  )
  for (const stay of [one, same, other, third]) stay?.leave()
  t.equal(precedence.arrive('c').goesFirst(), true, 'places are free again')
})

t.test('the only processor is left to everything else', async t => {
  t.equal(createPrecedence(1).arrive('a').goesFirst(), false)
})

t.test('whoever logs in all the time goes first only while nobody else is there', async t => {
  const precedence = createPrecedence(2)
  const next = (lane: string) => {
    const stay = precedence.arrive(lane)
    const isFirst = stay.goesFirst()
    stay.leave()
    return isFirst
  }
  t.same([next('busy'), next('busy')], [true, true], 'alone, every time')
  const other = precedence.arrive('other')
  t.equal(next('busy'), false, 'it was first last time')
  t.equal(other.goesFirst(), true)
  t.equal(next('busy'), false, 'somebody else is first')
  other.leave()
  t.equal(next('busy'), true)
})
