package classify

// words are what is looked for, by group: phrases between commas, a line for each
// language. A phrase begins where a word begins and ends where one ends, unless it
// ends with a star. Accents and case do not count. The languages: English, German,
// Spanish, French, Portuguese, Italian, Dutch, Russian, Hindi, Chinese, Japanese,
// Korean.
var words = [groups]string{
	analysis: `
analy*, compar*, contrast, evaluat*, assess*, trade-off*, tradeoff*, pros and cons, advantages and disadvantages, strengths and weaknesses, implications, consequences, impact of, critique, root cause*, investigat*, interpret, justify, weigh, versus, what factors, what drives, research question, review the
analysier*, vergleich*, bewert*, beurteil*, vor- und nachteile, vorteile und nachteile, abwaeg*, abwäg*, auswirkung*, ursachen, untersuch*, begründ*, gegenueber, stärken und schwächen, folgen von, erörter*
analiz*, analisis, compar*, evalua*, ventajas y desventajas, ventajas e inconvenientes, pros y contras, impacto, consecuencias, causas, investig*, critica*, fortalezas y debilidades
analys*, comparez, comparaison, evalue*, avantages et inconvenients, avantages et les inconvenients, consequences, causes de, impact de, enjeux, critique, points forts, examine*
analis*, compare, comparacao, avali*, vantagens e desvantagens, pros e contras, impacto*, consequencias, causas, investig*
analizz*, confront*, valuta*, vantaggi e svantaggi, pro e contro, impatto, conseguenze, cause di, cause della, esamina*
analyseer, vergelijk*, beoordeel*, voor- en nadelen, gevolgen van, oorzaken, onderzoek, evalueer
проанализир*, анализ*, сравни*, оцени*, плюсы и минусы, преимущества и недостатки, последствия, причины, влияние, исследуй*
विश्लेषण, तुलना, मूल्यांकन, फायदे और नुकसान, लाभ और हानि, प्रभाव*, कारणों, परिणामों, समीक्षा
分析, 比较, 比較, 对比, 评估, 評估, 优缺点, 优劣, 利弊, 影响, 原因, 后果, 权衡, 探讨, 论述, 评价
比較, 評価して, 長所と短所, メリットとデメリット, メリット・デメリット, 利点と欠点, 影響, 要因, 考察, 検討, 論じ
분석*, 비교*, 평가*, 장단점*, 영향*, 원인*, 결과를 논*, 고찰*, 검토*
reasons, causes, arguments for, for and against, differences between, contradict, solutions, measures, rank them, scoring, estimate, calculate each, evidence, walk me through, recommendation
gründe, argumente, unterschiede zwischen, lösungen, maßnahmen, fazit, schätz*, empfehlung, reihenfolge, berechne
razones, argumentos, diferencias entre, soluciones, medidas, estim*, calcula, conviene, recomendacion
raisons, arguments, differences entre, solutions, mesures, estim*, calcule*, recommandation
razoes, argumentos, diferencas entre, solucoes, medidas, estim*, calcul*, recomendacao
ragioni, argomenti, differenze tra, soluzioni, misure, stima*, calcol*, cause, raccomandazione
redenen, argumenten, verschillen tussen, oplossingen, maatregelen, schat, bereken, aanbeveling
аргумент*, различия между, решени*, меры, рассчита*, рекомендац*, вывод*
कारण बता*, कारण और, तर्क, अंतर, समाधान, उपाय*, अनुमान, लागत, सिफ़ारिश
理由, 论据, 区别, 解决办法, 解决方案, 措施, 估算, 计算每, 预算, 验证
理由, 論拠, 違いを, 解決策, 対策, 見積, 予算, 結論
이유와*, 이유를*, 논거*, 차이점*, 해결책*, 대책*, 추정*, 예산*, 결론*`,
	design: `
design*, architect*, implement*, develop a, develop an, build a, build an, create a plan, plan for, draw up, draft a plan, strategy, strategies, roadmap, framework, migration, migrate, optimi*, business plan, curriculum, syllabus, itinerary, workflow, system that, plan a, go-to-market, budget for, scalable, requirements
entwirf, entwerfe*, entwurf, entwickle, entwickeln, architektur*, implementier*, konzept*, strategie*, fahrplan, plane eine*, plane mir, erstelle einen plan, erstelle ein konzept, optimier*, migration*, geschaeftsplan, geschäftsplan, lehrplan, reiseplan, trainingsplan
disena*, diseno, desarrolla*, arquitectura, implementa*, estrategia*, plan de, planifica*, hoja de ruta, optimiza*, migracion, plan para, itinerario
concois, concevez, concevoir, conception, developpe*, architecture, implement*, strategie*, plan de, elabore*, feuille de route, optimise*, migration, itineraire, planifie*, business plan
projet*, desenh*, desenvolv*, arquitetura, implement*, estrategia*, plano de, planej*, roteiro, otimiz*, migracao, elabor*
progett*, svilupp*, architettura, implement*, strategi*, piano di, piano per, pianific*, ottimizz*, migrazione, itinerario, elabora*
ontwerp*, ontwikkel*, architectuur, implementeer, strategie, stappenplan, plan voor, bedenk een plan, optimaliseer, migratie, reisschema, ondernemingsplan
разработ*, спроектир*, архитектур*, реализу*, стратеги*, составь план, план по, план для, дорожн*, оптимизир*, миграци*, бизнес-план, маршрут
डिज़ाइन, डिजाइन, योजना, रणनीति, विकसित, वास्तुकला, रूपरेखा, लागू कर*, पाठ्यक्रम
设计, 設計, 架构, 实现一个, 制定, 方案, 策略, 规划, 路线图, 优化, 迁移, 开发一个, 计划书, 行程, 搭建
設計, アーキテクチャ, 実装し, 戦略, 計画を立て, 計画を作, 計画書, 開発し, 最適化, 移行, ロードマップ, 企画, 旅程, カリキュラム
설계*, 아키텍처*, 구현*, 전략*, 계획을*, 계획서*, 개발*, 최적화*, 이전 계획*, 로드맵*, 기획*, 일정표*, 커리큘럼*
outline, course on, grading scheme, scoring model, terms for, rewrite the plot, experiment
gliederung, umstellung, vorgehen
esquema, programa de
programme de, plan d'action
cronograma, plano
programma di, piano
opzet, plan van
программу обуч*, концепци*
कार्यक्रम, खाका, योजना बना*
大纲, 课程, 改进
概要を作, 手順, 改善策
개요*, 과정*, 방안*`,
	writing: `
essay, report on, report about, a report, article, white paper, whitepaper, blog post, proposal, cover letter, speech, short story, literature review, case study, newsletter, tutorial, documentation, press release, lesson plan, screenplay
aufsatz, bericht, artikel, essay, blogbeitrag, hausarbeit, rede, kurzgeschichte, anleitung, dokumentation, angebotsschreiben, bewerbungsschreiben, gutachten, pressemitteilung
ensayo, informe, articulo, propuesta, discurso, cuento, tutorial, documentacion, carta de presentacion
dissertation, rapport, article, essai, proposition, discours, nouvelle de, tutoriel, lettre de motivation, expose
redacao, relatorio, artigo, ensaio, proposta, discurso, conto, tutorial, documentacao, carta de apresentacao
saggio, relazione, rapporto, articolo, proposta, discorso, racconto, tutorial, documentazione, lettera di presentazione, tesina
opstel, verslag, rapport, artikel, betoog, toespraak, voorstel, handleiding, kort verhaal
эссе, доклад*, отчет, отчёт, стать*, сочинение, реферат, речь, рассказ, руководств*
निबंध, रिपोर्ट, लेख, भाषण, प्रस्ताव, कहानी
文章, 报告, 报告书, 论文, 作文, 演讲稿, 教程, 提案, 小说, 综述, 博客
論文, レポート, 報告書, 記事, エッセイ, 作文, スピーチ, 提案書, 小説, ブログ, 小論文
에세이*, 보고서*, 논문*, 기사*, 연설*, 제안서*, 소설*, 블로그*, 튜토리얼*`,
	code: `
code, codebase, function, functions, algorithm*, refactor*, debug*, unit test*, sql, python, javascript, typescript, rust, golang, java, kubernetes, docker, api, rest api, regex, stack trace, compile*, race condition, deadlock, concurren*, thread-safe, database schema, recursion, compiler, parser, microservice*, class hierarchy
programm*, funktion, algorithmus, quellcode, datenbank*, fehlermeldung, skript
programa en, codigo, funcion, algoritmo, base de datos, script
code, fonction, algorithme, base de donnees, programme en, script
codigo, funcao, algoritmo, banco de dados, programa em, script
codice, funzione, algoritmo, database, programma in, script
functie, algoritme, programma in, databank, broncode
код, кода, функци*, алгоритм*, скрипт*, программ*, баз* данных, базы данных, базу данных
कोड, फ़ंक्शन, फंक्शन, एल्गोरिदम, प्रोग्राम, डेटाबेस
代码, 函数, 算法, 数据库, 程序, 脚本, 接口, 微服务
コード, 関数, アルゴリズム, データベース, プログラム, スクリプト, リファクタリング
코드*, 함수*, 알고리즘*, 데이터베이스*, 프로그램을*, 스크립트*, 리팩터링*, 리팩토링*
intervals, complexity, time complexity, 500s, exception, linked list, binary tree`,
	math: `
prove, proof, derive, derivation, theorem, integral, differential equation*, eigenvalue*, probability that, optimization problem, linear program*, solve the system, induction, convergence
beweis*, herleit*, leite her, leite die, integral, differentialgleichung*, satz von, vollständige induktion
demuestra*, demostracion, deduce, integral, ecuacion diferencial, teorema, deriva la
demontre*, demonstration, integrale, equation differentielle, theoreme
prove que, demonstr*, integral, equacao diferencial, teorema
dimostr*, integrale, equazione differenziale, teorema
bewijs*, leid af, integraal, differentiaalvergelijking, stelling van
докаж*, доказательств*, интеграл*, теорем*, дифференциальн*, выведи формул*
सिद्ध, प्रमाण, समाकल, प्रमेय, अवकल
证明, 推导, 积分, 微分方程, 定理
証明, 導出, 積分, 微分方程式, 定理
증명*, 유도하*, 적분*, 미분방정식*, 정리를*`,
	depth: `
in detail, detailed, in depth, in-depth, comprehensive, comprehensively, thorough, thoroughly, step by step, step-by-step, with examples, deep dive, systematically, at least three, justify your, taking into account, considering, for each, including, covering
ausfuehrlich*, ausführlich*, detailliert*, im detail, umfassend*, schritt für schritt, gründlich, mit beispielen, berücksichtig*, jeweils, systematisch*, inklusive
en detalle, detallad*, exhaustiv*, paso a paso, en profundidad, con ejemplos, teniendo en cuenta, completo para, incluyendo, incluye
en detail, detaille*, approfondi*, etape par etape, pas a pas, complet, complete, avec des exemples, en tenant compte, exhaustif, incluant, y compris
em detalhe*, detalhad*, passo a passo, aprofundad*, abrangente, com exemplos, considerando, levando em conta, incluindo, completo
in dettaglio, dettagliat*, passo dopo passo, passo passo, approfondit*, completo, completa, con esempi, tenendo conto, includendo, esaustiv*
gedetailleerd*, uitgebreid*, stap voor stap, grondig*, diepgaand*, met voorbeelden, rekening houdend, inclusief
подробн*, детальн*, пошагов*, шаг за шагом, всесторонн*, с примерами, учитывая, с учетом, с учётом, включая, развернут*, глубок*
विस्तार, विस्तृत, चरण दर चरण, चरणबद्ध, गहराई, व्यापक, उदाहरण सहित, उदाहरणों, ध्यान में रख*
详细, 詳細, 深入, 全面, 一步一步, 逐步, 举例, 系统地, 考虑到, 包括, 分别
詳しく, 詳細, ステップごと, 段階的, 徹底的, 包括的, 例を挙げ, 具体例, 考慮し, それぞれ, 含めて
자세히, 상세*, 단계별*, 포괄적*, 심층*, 예시*, 고려하*, 각각*, 포함*, 구체적*`,
	sequence: `
first, then, finally, after that, afterwards, next, lastly, second, third, and also, followed by
zuerst, dann, danach, anschließend, schließlich, zuletzt, außerdem, zum schluss
primero, luego, despues, finalmente, por ultimo, ademas, a continuacion
d'abord, ensuite, puis, enfin, apres cela, finalement, pour finir
primeiro, depois, em seguida, por fim, finalmente, alem disso
prima, poi, infine, dopodiche, successivamente, inoltre
eerst, daarna, vervolgens, tenslotte, ten slotte, bovendien
сначала, затем, потом, наконец, после этого, далее, кроме того
पहले, फिर, उसके बाद, अंत में, इसके बाद
首先, 然后, 然後, 接着, 最后, 最後, 其次, 再把, 并且
まず, 次に, その後, 最後に, それから, さらに
먼저, 그다음*, 그 다음*, 마지막으로, 그리고 나서, 이후에, 그런 다음`,
	vague: `
tell me about, help me, thoughts on, what do you think, explain, describe, how do i, how can i, how should i, how would you, write, summari*, suggest, recommend*, advice, ideas for, improve, overview, give me some, why do, why does, why is, why are, how does, how do, should i, best way
erzähl mir, erzähle mir, hilf mir, was hältst du, erklär*, beschreib*, wie kann ich, wie soll ich, wie sollte ich, schreib*, fasse, zusammenfass*, empfiehl, empfehl*, schlag*, ideen für, tipps, verbesser*, warum, wie funktioniert, soll ich, überblick
cuentame, hablame, ayudame, que opinas, que piensas, explica*, describe, como puedo, como deberia, escrib*, resum*, recomien*, consejos, ideas para, mejora*, por que, como funciona, deberia, suger*
parle-moi, aide-moi, que penses-tu, explique*, decri*, comment puis-je, comment faire, ecris, redige*, resume*, recommande*, conseil*, idees pour, ameliore*, pourquoi, comment fonctionne, devrais-je, suggere*
fale sobre, fale-me, me fale, me ajude, ajude-me, o que voce acha, explique, descreva, como posso, como devo, escrev*, resum*, recomend*, dicas, ideias para, melhor*, por que, como funciona, devo, suger*
parlami, aiutami, cosa ne pensi, che ne pensi, spiega*, descrivi, come posso, come dovrei, scriv*, riassum*, consigli*, idee per, miglior*, perche, come funziona, dovrei, sugger*
vertel me, vertel eens, help me, wat vind je, leg uit, leg me, beschrijf, hoe kan ik, hoe moet ik, schrijf, vat samen, samenvat*, raad je, adviseer, tips, ideeën voor, verbeter*, waarom, hoe werkt, moet ik
расскажи*, помоги*, что ты думаешь, что думаешь, объясни*, опиши*, как мне, как лучше, напиши*, кратко излож*, посоветуй*, совет*, идеи для, улучши*, почему, как работает, стоит ли, предложи*
के बारे में बता*, मदद, क्या सोचते, समझा*, वर्णन, कैसे कर*, लिख*, सारांश, सुझाव*, सलाह, विचार दो, सुधार*, क्यों, कैसे काम, चाहिए
谈谈, 讲讲, 介绍一下, 说说, 帮我, 怎么看, 解释, 描述, 怎么办, 怎样, 如何, 写一, 写个, 写首, 总结, 推荐, 建议, 点子, 改进, 为什么, 应该
について教え, 手伝って, 助けて, どう思い, 説明して, 教えてください, どうすれば, どうやって, 書いて, 要約, おすすめ, アドバイス, アイデア, 改善, なぜ, どのように, べき
에 대해 말해*, 에 대해 알려*, 도와*, 어떻게 생각*, 설명*, 묘사*, 어떻게 하*, 어떻게 해*, 써 줘, 써줘, 요약*, 추천*, 조언*, 아이디어*, 개선*, 왜, 해야 할*
tips, teach me, difference between, which one should, what now, give me a, make this, sound, got any
tipps, unterschied zwischen, wie schreibt man, wie macht man, bring mir
como se hace, diferencia entre, ensename
comment apprendre, comment fait-on, difference entre, apprends-moi
como fazer, como se faz, diferenca entre, me ensine
come si fa, differenza tra, insegnami
hoe maak je, verschil tussen, leer me
как сделать, разница между, научи*
कैसे बना*, अंतर, सिखा*
怎么做, 怎么样, 的区别, 教我
作り方, の違い, コツ
방법*, 차이*, 가르쳐*, 알려 줘, 알려줘`,
	lookup: `
what is the, what's the, what is a, what's a, who is, who was, who wrote, who invented, when did, when was, when is, where is, what year, what time, how many, how much, how old, how far, how tall, how long, how do you say, how do you spell, define, definition of, translate, spell, capital of, synonym*, convert, meaning of, what does, true or false, is it true, which country, what color, what colour, name a, name the, abbreviation
was ist, wer ist, wer war, wer hat, wann war, wann ist, wann wurde, wo ist, wo liegt, wie viele, wie viel, wie alt, wie hoch, wie weit, wie lange, wie heißt, übersetz*, hauptstadt, synonym*, definier*, bedeutet, welches jahr, welche farbe, wie schreibt man, wie spät, rechne
que es, quien es, quien fue, quien escribio, cuando fue, cuando es, donde esta, donde queda, cuantos, cuantas, cuanto, capital de, traduce*, sinonimo*, define, significa, que hora, como se dice, como se escribe, en que ano, de que color, convierte
qu'est-ce que, qu'est-ce qu'un*, c'est quoi, qui est, qui a, quand a, quand est, ou est, ou se trouve, combien, quelle est la capitale, capitale, tradui*, synonyme*, definis, definition de, signifie, quelle heure, comment dit-on, comment ecrit-on, quelle annee, en quelle annee, de quelle couleur, converti*, quel age
o que e, quem e, quem foi, quem escreveu, quando foi, quando e, onde fica, quantos, quantas, quanto, capital d*, traduz*, sinonimo*, defina, significa, que horas, como se diz, como se escreve, em que ano, de que cor, converta
cos'e, che cos'e, chi e, chi ha, chi era, quando e, dov'e, dove si trova, quanti, quante, quanto, capitale, traduci*, sinonim*, definisci, significa, che ore, come si dice, come si scrive, in che anno, in quale anno, di che colore, converti
wat is, wie is, wie was, wie heeft, wanneer was, wanneer is, waar is, waar ligt, hoeveel, hoe oud, hoe hoog, hoe ver, hoe lang, hoofdstad, vertaal, synoniem, definieer, betekent, hoe laat, hoe zeg je, hoe schrijf je, welk jaar, welke kleur
что такое, кто такой, кто такая, кто написал, кто изобрел*, когда был*, где находится, сколько, столиц*, переведи*, синоним*, определение слова, что значит, что означает, который час, как сказать, как пишется, в каком году, какого цвета
क्या है, कौन है, कौन थे, कौन था, किसने, कब हुआ, कब है, कहाँ है, कहां है, कितने, कितना, कितनी, राजधानी, अनुवाद, पर्यायवाची, परिभाषा, मतलब, अर्थ, किस वर्ष, किस रंग
什么是, 是什么, 是谁, 谁写, 谁发明, 什么时候, 在哪里, 在哪, 多少, 几个, 几点, 首都, 翻译, 同义词, 反义词, 定义, 什么意思, 哪一年, 哪年, 多高, 多大, 多远, 怎么说, 怎么写, 怎么读, 换算
とは何, とは何ですか, は誰, 誰が, いつ, どこ, いくつ, いくら, 何人, 首都, 翻訳, 訳して, 同義語, 類義語, 意味, 何年, 何時, 何色, 何と言い, 定義, 読み方, 何度, 何語
무엇인가요, 뭐야, 뭐예요, 누구*, 언제*, 어디*, 몇, 얼마*, 수도*, 번역*, 동의어*, 뜻*, 정의해*, 몇 년*, 무슨 색*, 어떻게 말*, 철자*`,
	greeting: `
hello, hey there, hi there, thanks, thank you, good morning, good evening, good night, how are you, bye, goodbye, nice to meet you, cheers, sounds good, tell me a joke
hallo, guten morgen, guten tag, guten abend, danke, vielen dank, wie geht, tschüss, servus, moin
hola, buenos dias, buenas tardes, buenas noches, gracias, como estas, adios, que tal
bonjour, bonsoir, salut, merci, comment ca va, comment vas-tu, au revoir, bonne nuit
ola, bom dia, boa tarde, boa noite, obrigad*, tudo bem, tchau, como vai
ciao, buongiorno, buonasera, buonanotte, grazie, come stai, arrivederci, come va
hallo, hoi, goedemorgen, goedenavond, goedemiddag, dank je, bedankt, hoe gaat het, tot ziens
привет, здравствуй*, доброе утро, добрый день, добрый вечер, спасибо, как дела, пока
नमस्ते, धन्यवाद, शुक्रिया, सुप्रभात, शुभ रात्रि, कैसे हो, कैसे हैं, अलविदा
你好, 您好, 谢谢, 早上好, 晚上好, 晚安, 再见, 你好吗, 早安
こんにちは, こんばんは, おはよう, ありがとう, おやすみ, お元気, さようなら, はじめまして
안녕*, 감사합니다, 고마워*, 고맙습니다, 잘 지내*, 잘 자*, 좋은 아침*`,
	act: `
search the web, search online, search the internet, google for, browse, download, upload, scrape, crawl, run the, run it, run this, run all, execute, deploy, install, send an email, send a message, send it, send them, email it, email them, email the, post it, post the, book a, book me, order me, reserve, schedule a, set a reminder, add to my calendar, create a file, create the file, save it, save the, save them, delete the, rename, move the, open the, click, log in, fetch the, fetch, push, commit, merge the, pull request, monitor, notify me, alert me, look up online, check my, check the website, check the current, find the latest, find flights, fill in the form, fill out, restart, back up, clone the, convert all, sign me up, buy
suche im internet, such im internet, im internet nach, such online, recherchiere im, lade *, herunterlad*, lade die, lade alle, hochlad*, führe das, führe die, führe alle, ausführ*, installier*, sende, send eine, schick*, verschick*, buche, reservier*, bestell*, erinnere mich, trage in, speicher*, lösche, benenne, umbenenn*, öffne, klick*, logge, melde dich, überwach*, benachrichtig*, prüfe die webseite, rufe die, ruf die, starte den, starte die, sichere
busca en internet, busca en la web, busca en linea, buscar en internet, descarga*, sube, ejecuta*, instala*, despliega, envia*, manda*, reserva*, compra, programa una, recuerdame, agenda una, guarda*, borra*, elimina*, renombra*, abre, haz clic, inicia sesion, monitorea, vigila, avisame, notificame, extrae de la pagina, consulta la pagina, rellena el formulario, reinicia
cherche sur internet, cherche sur le web, recherche sur internet, recherche en ligne, cherche en ligne, telecharge*, execute*, lance les, lance le, installe*, deploie*, envoie*, reserve*, achete*, commande-moi, programme une, rappelle-moi, ajoute a mon, enregistre*, sauvegarde*, supprime*, renomme*, ouvre, clique*, connecte-toi, surveille*, previens-moi, alerte-moi, consulte le site, remplis le, redemarre
pesquise na internet, pesquise na web, procure na internet, busque na internet, pesquisa na internet, baixe, baixar, faca o download, execute, rode, instale, implante, envie, mande, reserve, compre, agende, lembre-me, me lembre, salve, guarde, apague, exclua, renomeie, abra, clique, faca login, monitore, me avise, avise-me, consulte o site, preencha o, reinicie
cerca su internet, cerca sul web, cerca online, cerca in rete, scarica*, carica il, esegui*, installa*, invia*, manda*, prenota*, compra*, ricordami, aggiungi al mio, salva*, elimina*, cancella*, rinomina*, apri, clicca*, accedi, monitora*, avvisami, notificami, consulta il sito, compila il modulo, riavvia
zoek op internet, zoek online, zoek op het web, download, voer de, voer het, voer alle, uitvoer*, installeer, stuur*, verstuur*, boek, reserveer, bestel, herinner me, zet in mijn, sla op, bewaar, verwijder, hernoem, open de, open het, klik, log in, houd in de gaten, bewaak, waarschuw me, bekijk de website, vul het formulier, herstart
найди в интернете, поищи в интернете, найди в сети, погугли, скачай*, загрузи*, запусти*, выполни*, установи*, разверни, отправь*, пошли*, забронируй*, закажи*, купи*, напомни*, добавь в календарь, сохрани*, удали*, переименуй*, открой*, кликни*, нажми*, войди*, следи за, отслеживай*, уведоми*, сообщи мне, заполни форму, перезапусти*, проверь сайт
इंटरनेट पर खोज*, वेब पर खोज*, ऑनलाइन खोज*, डाउनलोड, अपलोड, चलाओ, चलाएं, चलाइए, इंस्टॉल, ईमेल भेज*, भेज दो, भेजो, भेजें, बुक कर*, ऑर्डर कर*, याद दिला*, सेव कर*, सहेज*, हटा दो, हटाओ, हटाएं, खोलो, खोलें, खोलकर, क्लिक, लॉगिन, निगरानी, सूचित कर*
上网搜索, 搜索网, 网上搜, 网上查, 上网查, 搜一下, 在网上, 下载, 上传, 运行, 执行, 部署, 安装, 发送, 发邮件, 发一封, 发给, 预订, 订一张, 订机票, 提醒我, 添加到日历, 保存到, 保存成, 保存为, 删除, 重命名, 打开, 点击, 登录, 监控, 通知我, 抓取, 爬取, 提交到, 推送, 重启, 备份, 购买
ネットで検索, ウェブで検索, インターネットで検索, 検索して, ネットで調べ, ダウンロード, アップロード, 実行し, デプロイ, インストール, 送信し, 送って, メールし, 予約し, 注文し, リマインド, カレンダーに追加, 保存し, 削除し, 開いて, クリック, ログイン, 監視し, 通知し, 取得し, スクレイピング, コミット, プッシュし, 再起動, バックアップ, 購入し, リネーム
인터넷에서 검색*, 인터넷에서 찾*, 웹에서 검색*, 웹에서 찾*, 온라인에서 찾*, 검색해*, 검색한*, 다운로드*, 내려받*, 업로드*, 실행*, 배포*, 설치*, 보내 줘, 보내줘, 전송*, 예약*, 주문*, 알림을*, 캘린더에*, 저장*, 삭제*, 이름을 바꿔*, 열어*, 열고, 클릭*, 로그인*, 모니터링*, 커밋*, 푸시*, 재시작*, 백업*, 구매*
turn off, turn on, set the alarm, set an alarm, set the heating, wake me, go to, take a screenshot, attach, unsubscribe, message my, text my, call my, ping, tag it, compile the project, look through my, replace them, put it in, put them, get me the, order a, play the, look up the, check if, check whether, find me a, find out, track, refresh, mark all, archive, forward, reply to, add it to
stell den, stelle den, stell einen, mach das licht, schalte, schau nach, starte ihn, starte neu, sieh nach, ruf an, antworte, leite weiter, such mir, finde heraus, füge, hänge, archivier*
mira en mi, pon una alarma, pon la alarma, apaga, enciende, llama a, responde a, reenvia, busca el, busca la, encuentra, comprueba, añade, anade, actualiza, haz una captura, propon una cita, publica
mets un reveil, allume, eteins, appelle, reponds a, transfere, trouve sur, verifie, regarde dans mon, ajoute, mets a jour, publie, prends une capture
veja no meu, ligue, desligue, acenda, apague, responda, encaminhe, procure, encontre, verifique, adicione, atualize, publique, tire um print, coloque um alarme, mande um
controlla se, controlla il mio, accendi, spegni, chiama, rispondi a, inoltra, trova, verifica se, aggiungi, aggiorna, pubblica, fai uno screenshot, metti la sveglia, imposta, riavvialo
zet de wekker, doe het licht, zet het licht, bel, beantwoord, stuur door, zoek mijn, controleer of, kijk in mijn, voeg, werk bij, publiceer, maak een screenshot
поставь будильник, включи, выключи, позвони, ответь на, перешли, проверь, посмотри в, добавь, обнови, опубликуй, сделай скриншот
ईमेल करो, ईमेल कर*, अलार्म, बंद कर*, चालू कर*, फ़ोन कर*, जवाब भेज*, जाँच कर*, जोड़ो, जोड़ दो, अपडेट कर*, खोजो, खोजकर, डाल दो
查一下, 设闹钟, 关灯, 打开灯, 关掉, 打电话, 回复, 转发, 检查一下, 添加, 更新, 发布, 截图, 查看, 预约
アラーム, つけて, 消して, 電話し, 返信し, 転送し, 確認して, 追加し, 更新し, 公開し, スクリーンショット, 調べて, 予定を入れ
알람*, 켜 줘, 꺼 줘, 전화해*, 답장*, 전달해*, 확인하고, 확인해*, 추가해*, 업데이트*, 게시*, 스크린샷*, 찾아서, 찾아 줘`,
	tool: `
file, files, folder, directory, browser, website, web page, webpage, terminal, shell, command line, api, endpoint, server, repository, repo, calendar, inbox, spreadsheet, csv, pdf, online, email, tests, test suite, staging, production, database, latest news, today, tomorrow, current price, url, script, slack, ticket, tickets, flight, hotel, log file, logs
datei, dateien, ordner, verzeichnis, browser, webseite, webseiten, terminal, server, kalender, posteingang, tabelle, csv, pdf, e-mail, mail, tests, morgen, heute, aktuell*, flug, hotel, repository, nachricht
archivo, archivos, carpeta, navegador, sitio web, pagina web, terminal, servidor, calendario, bandeja, hoja de calculo, csv, pdf, correo, correos, pruebas, hoy, manana, actual, actuales, vuelo, vuelos, hotel, repositorio
fichier, fichiers, dossier, navigateur, site web, site, terminal, serveur, calendrier, boite mail, tableur, csv, pdf, e-mail, mail, courriel, tests, aujourd'hui, demain, actuel*, vol, hotel, depot
arquivo, arquivos, pasta, navegador, site, terminal, servidor, calendario, agenda, planilha, csv, pdf, e-mail, email, testes, hoje, amanha, atual, atuais, voo, voos, hotel, repositorio
file, cartella, browser, sito, sito web, pagina web, terminale, server, calendario, foglio di calcolo, csv, pdf, e-mail, email, mail, test, oggi, domani, attuale, attuali, volo, voli, hotel, repository
bestand, bestanden, browser, website, terminal, server, agenda, spreadsheet, csv, pdf, e-mail, mail, mailtje, tests, vandaag, morgen, actuele, vlucht, hotel, repository
файл*, папк*, браузер*, сайт*, терминал*, сервер*, календар*, таблиц*, csv, pdf, письмо, почт*, тесты, сегодня, завтра, текущ*, рейс*, отель, репозитори*
फ़ाइल*, फाइल*, फ़ोल्डर, फोल्डर, ब्राउज़र, वेबसाइट, सर्वर, कैलेंडर, स्प्रेडशीट, csv, pdf, ईमेल, टेस्ट, आज, कल, ताज़ा, ताजा, उड़ान, होटल
文件, 文件夹, 目录, 浏览器, 网站, 网页, 终端, 服务器, 日历, 表格, csv, pdf, 邮件, 邮箱, 测试, 今天, 明天, 最新, 航班, 机票, 酒店, 仓库, 价格
ファイル, フォルダ, ブラウザ, サイト, ページ, ターミナル, サーバー, カレンダー, スプレッドシート, csv, pdf, メール, テスト, 今日, 明日, 最新, 航空券, ホテル, リポジトリ
파일*, 폴더*, 브라우저*, 웹사이트*, 사이트*, 터미널*, 서버*, 캘린더*, 스프레드시트*, csv*, pdf*, 메일*, 이메일*, 테스트*, 오늘*, 내일*, 최신*, 항공권*, 호텔*, 저장소*
weather, right now, currently, latest, stock price, exchange rate, mailbox, newsletter, screenshot, lights, heating, alarm, my phone, my laptop, txt, hosts, my account, landing page, branch, build, version, tag, cell, meeting, appointment, contacts, playlist, score of
wetter, gerade jetzt, börsenkurs, wechselkurs, wecker, licht, termin*, konto, besprechung
tiempo hace, ahora mismo, cotizacion, alarma, luz, cita, reunion, cuenta
meteo, en ce moment, cours de, reveil, lumiere, rendez-vous, reunion, billets, compte
clima, agora, cotacao, alarme, luz, reuniao, convite, conta, boleto
meteo, adesso, quotazione, sveglia, luce, appuntamento, riunione, biglietti, conto
weer, koers, wekker, licht, afspraak, vergadering, rekening
погод*, сейчас, курс, будильник, свет, встреч*, счет, счёт
मौसम, अभी, अलार्म, बत्ती, बैठक, खाता, जानकारी
天气, 现在, 股价, 汇率, 闹钟, 灯, 会议, 日程, 账户
天気, いま, 株価, 為替, アラーム, 電気を, 会議, 予定, 口座
날씨*, 지금*, 주가*, 환율*, 알람*, 불을*, 회의*, 일정을*, 계좌*`,
}
