/**
 * The page's script. The page can be read without it: it adds the search, the buttons that copy, and links that open
 * what they lead to. It asks the server for nothing.
 */
export const SCRIPT = `
'use strict'
const all = selector => [...document.querySelectorAll(selector)]
const operations = all('.op').map(element => ({
  element,
  text: [element.firstElementChild, ...element.querySelectorAll('pre')].map(part => part.textContent).join(' ').toLowerCase(),
  names: new Set([...element.querySelectorAll('dt code')].map(name => name.textContent.toLowerCase())),
}))
const input = document.getElementById('search')
const found = document.getElementById('found')

function search() {
  const words = input.value.toLowerCase().split(/\\s+/).filter(Boolean)
  let count = 0
  for (const { element, text, names } of operations) {
    element.hidden = !words.every(word => text.includes(word) || names.has(word))
    if (!element.hidden) count += 1
  }
  for (const section of all('main section')) {
    const own = section.querySelectorAll('.op')
    section.hidden = words.length > 0 && [...own].every(element => element.hidden)
  }
  found.textContent = words.length === 0 ? '' : count === 1 ? '1 operation' : count + ' operations'
}

/** Opens and shows what the fragment names, whatever was searched for. */
function follow() {
  const id = decodeURIComponent(location.hash.slice(1))
  const target = id === '' ? null : document.getElementById(id)
  if (target === null) return
  if (target.closest('[hidden]') !== null) {
    input.value = ''
    search()
  }
  for (let element = target; element !== null; element = element.parentElement) {
    if (element.localName === 'details') element.open = true
  }
  target.scrollIntoView()
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text)
  } catch {
    // Browsers offer the clipboard only to pages from this machine or over HTTPS.
    const area = document.body.appendChild(document.createElement('textarea'))
    area.value = text
    area.select()
    document.execCommand('copy')
    area.remove()
    button.focus()
  }
  const label = button.textContent
  button.textContent = 'Copied'
  setTimeout(() => { button.textContent = label }, 1500)
}

/** Puts a button at the right end of an element's line. */
function addButton(element, label, name, textOf) {
  const line = document.createElement('div')
  line.className = 'line'
  element.replaceWith(line)
  const button = document.createElement('button')
  button.type = 'button'
  button.textContent = label
  button.setAttribute('aria-label', name)
  button.addEventListener('click', () => { if (button.textContent === label) void copy(textOf(), button) })
  line.append(element, button)
}

const root = location.href.replace(/[?#].*$/, '').replace(/\\/docs\\/?$/, '')
for (const place of all('.root')) place.textContent = root
for (const pre of all('pre')) {
  const heading = pre.previousElementSibling
  addButton(heading, 'Copy', 'Copy: ' + heading.textContent, () => pre.textContent)
}
for (const { element } of operations) {
  const name = [...element.firstElementChild.children].map(part => part.textContent).join(' ')
  addButton(element.querySelector('p'), 'Copy link', 'Copy the link to ' + name, () => root + '/docs#' + element.id)
  element.addEventListener('toggle', () => { if (element.open) history.replaceState(null, '', '#' + element.id) })
}
input.addEventListener('input', search)
input.addEventListener('keydown', event => {
  const first = operations.find(({ element }) => !element.hidden)
  if (event.key !== 'Enter' || input.value === '' || first === undefined) return
  // Or the same key press would close it again.
  event.preventDefault()
  first.element.open = true
  first.element.firstElementChild.focus()
})
document.addEventListener('keydown', event => {
  if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input')) return
  event.preventDefault()
  input.focus()
})
document.querySelector('nav search').hidden = false
addEventListener('hashchange', follow)
search()
follow()
`
